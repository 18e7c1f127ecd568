"""How good a network is on a whole source: mean loss and accuracy in eval mode, counted exactly, also for stacks."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.errors import InputError
from epoch0.train._circular_convolution import with_cheap_circles
from epoch0.train._loss_of_each import of_each
from epoch0.train.augmentation import CropResizeFlip
from epoch0.train.device import Precision, precision_for
from epoch0.train.sources import Source, Tensors, batches, check_classes
from epoch0.train.stacked import Stacked

TOP = 5


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Mean loss and share of examples that are classified right; usable as ``evaluate=`` of the training loop.

    >>> test = Evaluation((torch.eye(2), torch.tensor([0, 0])))             # inputs (2, 2), targets (2,)
    >>> test(nn.Identity())["test_accuracy"]
    0.5

    Attributes:
        source: the examples: a source, or inputs and targets; it is moved to where the network is, once for a device.
        batch_size: examples a forward pass; changes nothing but rounding.
        name: of the split; begins the names of the metrics.
        loss: ``loss(outputs, targets)``, the mean over a batch.
        top5: also the share of examples whose class is among the five largest outputs.
        precision: what products are computed in: ``"float32"``, ``"bfloat16"``, or ``"auto"`` (bfloat16 on CUDA);
            outputs become float32 before they are judged.

    Raises:
        InputError: if `source` is augmented, `batch_size` below 1 or `name` empty.
    """

    source: Source | tuple[Tensor, Tensor]
    batch_size: int = 1000
    name: str = "test"
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    top5: bool = False
    precision: Precision = "float32"
    _moved: dict[torch.device, Source] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what would not be an evaluation."""
        if isinstance(self.source, tuple):
            object.__setattr__(self, "source", Tensors(*self.source))
        changed = getattr(self.source, "augment", None)
        if changed is None and isinstance(view := getattr(self.source, "view", None), CropResizeFlip):
            changed = view
        if changed is not None:
            raise InputError(f"an evaluation is of the examples as they are, and this source has {changed}; leave it "
                             "out.")  # fmt: skip
        if self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}; it must be at least 1.")
        if not self.name:
            raise InputError("name='' would give a metric the name of the training loss; call the split something.")

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """Evaluate; modes and buffers of the model stay as they are.

        Args:
            model: a network with outputs of shape (batch, classes), or a stack of them.

        Returns:
            ``test_loss``; for class labels ``test_accuracy`` and, if asked for, ``test_top5``, both in [0, 1]. A list
            with one number a network for a stack.

        Raises:
            InputError: if a label is out of the range of the outputs.
        """
        tensors = (*model.parameters(), *model.buffers())
        device = tensors[0].device if tensors else torch.device("cpu")
        source = self._on(device)
        numbers = torch.arange(len(source))
        plan = ((chosen, 0) for chosen in numbers.split(self.batch_size))
        stack = isinstance(model, Stacked)
        low = precision_for(self.precision, device) == "bfloat16"
        losses: Tensor | float = 0.0
        right: list[Tensor | int] = [0, 0]
        labelled, counted = False, 0
        loss = of_each(self.loss) if stack else self.loss
        call = with_cheap_circles(model, model) if device.type == "cpu" and not _is_compiled(model) else model
        with _in_eval_mode(model), contextlib.closing(batches(source, plan)) as stream:
            for inputs, targets in stream:
                with torch.autocast(device.type, torch.bfloat16, enabled=low):
                    outputs = call(inputs)
                outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
                if not counted:
                    labelled = not targets.is_floating_point() and targets.dim() == 1
                    if labelled:
                        check_classes(source.targets, outputs.shape[-1])
                counted += len(targets)
                losses = losses + loss(outputs, targets).double() * len(targets)
                if labelled:
                    for i, hits in enumerate(self._hits(outputs, targets)):
                        right[i] = right[i] + hits
        found = {"loss": losses / counted}
        names = ("accuracy", "top5")[: 1 + self.top5] if labelled else ()
        found.update({name: torch.as_tensor(hits).double() / counted for name, hits in zip(names, right, strict=False)})
        return {f"{self.name}_{name}": torch.as_tensor(value).tolist() for name, value in found.items()}

    def _hits(self, outputs: Tensor, targets: Tensor) -> Iterator[Tensor]:
        """How many examples are right, and among the best five: int64, one number a network."""
        yield (outputs.argmax(-1) == targets).sum(-1)
        if self.top5:
            best = outputs.topk(min(TOP, outputs.shape[-1]), dim=-1).indices
            yield (best == targets[:, None]).any(-1).sum(-1)

    def _on(self, device: torch.device) -> Source:
        if device not in self._moved:
            assert not isinstance(self.source, tuple)  # made a source when this was built
            self._moved[device] = self.source.to(device)
        return self._moved[device]


def _is_compiled(model: nn.Module) -> bool:
    """By torch.compile, for which a layer with another forward is another network."""
    return hasattr(model, "_orig_mod")


@contextlib.contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode for a while; every module gets the mode back that it had."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
