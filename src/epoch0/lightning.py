"""The checkup as a callback of Lightning: before the first step, in the logger, and refusing to start if need be."""

from typing import Any

from epoch0.diagnosis.result import VerdictError
from epoch0.integrations import Examination, first, log, scalars


class Checkup(Examination):
    """A checkup before the first step of Lightning's Trainer.

    ::

        callback = epoch0.lightning.Checkup(fail_on="hard")
        lightning.Trainer(callbacks=[callback]).fit(module, loader)     # training, or a VerdictError with the report

    The loss is that of ``training_step``, the optimizers those that the trainer has. Numbers go to every logger of the
    trainer, see :func:`epoch0.integrations.scalars`; the page lies in the logger's folder, and in its run where that
    takes artifacts. With several processes the first looks, and all of them start or none. The arguments are those of
    :class:`epoch0.integrations.Examination`.
    """

    library, base = ("lightning.pytorch", "pytorch_lightning"), "Callback"

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Called by the trainer: modules are on their devices, nothing was trained yet."""
        refused = ""
        if trainer.is_global_zero:
            folder = next((item.log_dir for item in trainer.loggers if getattr(item, "log_dir", None)), None)
            page = self.examine(
                module,
                lambda: trainer.strategy.batch_to_device(first(trainer.train_dataloader)),
                folder or trainer.default_root_dir,
                optimizer=trainer.optimizers or None,
            )
            numbers = scalars(self.found) if self.found is not None else {}
            for logger in trainer.loggers:
                log(logger, numbers, trainer.global_step)
                run: Any = getattr(logger, "experiment", None)
                if page is not None and hasattr(run, "log_artifact"):  # MLflow's client wants to know which run
                    run.log_artifact(*([logger.run_id] if hasattr(logger, "run_id") else []), str(page))
                if hasattr(run, "add_text"):
                    run.add_text("epoch0/checkup", f"```\n{self.found}\n```", trainer.global_step)
            refused = self.refusal()
        if refused := trainer.strategy.broadcast(refused):
            raise VerdictError(refused)
