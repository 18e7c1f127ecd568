"""The callbacks in the libraries that they are for: Lightning, Hugging Face's Trainer, TensorBoard; for ``make zoo``.

Seconds for each; networks of a few thousand weights that are trained for four steps.
"""

import copy
import pickle
from pathlib import Path

import lightning
import pytest
import torch
import transformers
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import epoch0 as e0
from epoch0.diagnosis.result import VerdictError
from epoch0.integrations import TrainerCheckup, log

QUICK = {"trial": False, "seconds": 5.0}


def data() -> TensorDataset:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(256, 20, generator=source)
    return TensorDataset(x, (x @ torch.randn(20, 4, generator=source)).argmax(1))


class Module(lightning.LightningModule):
    """Without a forward, and it logs: both as is common."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [
            nn.Linear(20, 32),
            nn.ReLU(),
            *[part for _ in range(depth) for part in (nn.Linear(32, 32), nn.ReLU())],
        ]
        self.net, self.seen = nn.Sequential(*layers, nn.Linear(32, 4)), []

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        self.seen.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def fit(folder: Path, depth: int, *callbacks: lightning.Callback) -> tuple[Module, lightning.Trainer]:
    module, quiet = Module(depth), {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    quiet |= {"enable_checkpointing": False, "accelerator": "cpu", "default_root_dir": folder, "log_every_n_steps": 1}
    quiet["logger"] = [TensorBoardLogger(folder / "board", name=""), CSVLogger(folder / "csv", name="")]
    trainer = lightning.Trainer(max_steps=4, callbacks=list(callbacks), **quiet)
    torch.manual_seed(1)
    trainer.fit(module, DataLoader(data(), 64, shuffle=True))
    return module, trainer


def numbers(folder: Path) -> dict[str, float]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}


def test_lightning_is_told_before_the_first_step_and_trains_as_without(tmp_path: Path) -> None:
    callback = e0.lightning.Checkup(fail_on="hard", **QUICK)
    assert isinstance(callback, lightning.Callback) and isinstance(callback, e0.lightning.Checkup)
    plain, _ = fit(tmp_path / "plain", 2)
    seen, trainer = fit(tmp_path / "seen", 2, callback)
    assert callback.found.trains and not any("pass its optimizer" in text for text in callback.found.not_examined)
    assert seen.seen == plain.seen and len(seen.seen) == 4  # the same examples, the same numbers, nothing more logged
    folder = Path(trainer.loggers[0].log_dir)
    assert "Checkup of" in (folder / "epoch0-checkup.html").read_text()
    told = numbers(folder)
    assert told["epoch0/trains"] == 1.0 and told["epoch0/forward_gain/net.0"] > 0 and told["loss"] > 0
    assert "epoch0/trains" in (Path(trainer.loggers[1].log_dir) / "metrics.csv").read_text()
    assert pickle.loads(pickle.dumps(callback)).fail_on == copy.deepcopy(callback).fail_on == "hard"


def test_lightning_does_not_start_what_will_not_train(tmp_path: Path) -> None:
    with pytest.raises(VerdictError, match=r"architecture|gradients"):
        fit(tmp_path, 40, e0.lightning.Checkup(fail_on="hard", **QUICK))


def train(folder: Path, std: float, **settings) -> tuple[TrainerCheckup, transformers.Trainer]:
    shape = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 16, "vocab_size": 50}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, initializer_range=std))
    words = torch.randint(50, (64, 16), generator=torch.Generator().manual_seed(0))
    examples = [{"input_ids": row, "labels": row} for row in words]
    where = {"output_dir": str(folder), "report_to": ["tensorboard"], "use_cpu": True, "save_strategy": "no"}
    args = transformers.TrainingArguments(**where, max_steps=2, logging_steps=1, disable_tqdm=True)
    callback = TrainerCheckup(**QUICK, **settings)
    trainer = transformers.Trainer(model, args, train_dataset=examples, callbacks=[callback])
    callback.logger = trainer
    trainer.train()
    return callback, trainer


def test_hugging_face_is_told_before_the_first_step(tmp_path: Path) -> None:
    callback, trainer = train(tmp_path, 0.02)
    assert isinstance(callback, transformers.TrainerCallback) and trainer.state.global_step == 2
    assert callback.found.recipes["adam"].trains and (tmp_path / "epoch0-checkup.html").exists()
    first = trainer.state.log_history[0]
    assert first["step"] == 0 and first["epoch0/trains"] == 1.0
    boards = {path.parent for path in tmp_path.rglob("events.out.tfevents*")}
    assert any("epoch0" in tag and "trains" in tag for board in boards for tag in numbers(board))


def test_hugging_face_does_not_start_what_will_not_train(tmp_path: Path) -> None:
    with pytest.raises(VerdictError, match=r"ill not train|oes not learn"):
        train(tmp_path, 1e4, fail_on="hard")


def test_tensorboard_takes_lengths_and_gains(tmp_path: Path) -> None:
    net, x = e0.networks.mlp([20, 32, 32, 4], seed=0), data().tensors[0]
    watch = e0.train.TrajectoryLengths(e0.Line(x[0], x[1]))
    with SummaryWriter(tmp_path) as writer:
        log(writer, e0.gain(net, x), step=0)
        watch(7, net)
        log(writer, watch, step=7)
    told = numbers(tmp_path)
    assert told["epoch0/forward/0"] == pytest.approx(e0.gain(net, x).layers[0].forward, rel=1e-6)
    assert told["epoch0/length/4"] == pytest.approx(float(watch.lengths[0, 3]), rel=1e-6)
