"""The callbacks in stand-ins of their libraries; zoo/test_integrations.py has the real ones."""

import copy
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.diagnosis.result import VerdictError
from epoch0.errors import InputError
from epoch0.integrations import active, log, scalars


class Logger:
    """Lightning's, with a run that takes files."""

    def __init__(self, folder: Path) -> None:
        self.log_dir, self.told, self.files, self.experiment = folder, [], [], self

    def log_metrics(self, numbers: dict[str, float], step: int) -> None:
        self.told.append((step, numbers))

    def log_artifact(self, path: str) -> None:
        self.files.append(path)


class Module(nn.Module):
    """A LightningModule without a forward, as far as a checkup sees it."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(20, 16), *[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(depth)]
        )
        self.logged: list[str] = []

    def log(self, name: str, value: Any) -> None:
        self.logged.append(name)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.log("loss", 0.0)
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])


@pytest.fixture
def loader() -> Any:
    source = torch.Generator().manual_seed(0)
    x, y = torch.randn(96, 20, generator=source), torch.randint(4, (96,), generator=source)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 32, shuffle=True)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, base in (("lightning", ""), ("lightning.pytorch", "Callback"), ("transformers", "TrainerCallback")):
        made = types.ModuleType(name)
        if base:
            setattr(made, base, type(base, (), {}))
        monkeypatch.setitem(sys.modules, name, made)


def lightning(loader: Any, model: Module, folder: Path) -> Any:
    strategy = types.SimpleNamespace(batch_to_device=lambda batch: batch, broadcast=lambda text: text)
    rates = torch.optim.Adam(model.parameters(), 1e-3)
    where = {"loggers": [Logger(folder)], "default_root_dir": str(folder), "global_step": 0, "is_global_zero": True}
    return types.SimpleNamespace(**where, strategy=strategy, optimizers=[rates], train_dataloader=loader)


@pytest.mark.usefixtures("libraries")
def test_lightning_gets_numbers_and_page_and_its_module_back(loader: Any, tmp_path: Path) -> None:
    callback = e0.lightning.Checkup(trial=False, seconds=1.0)
    assert isinstance(callback, sys.modules["lightning.pytorch"].Callback)
    model = Module(1)
    trainer, before = lightning(loader, model, tmp_path), torch.get_rng_state()
    callback.on_train_start(trainer, model)
    assert torch.equal(torch.get_rng_state(), before)  # training sees the batches that it would have seen
    assert model.logged == [] and "log" not in vars(model)
    ((step, numbers),) = trainer.loggers[0].told
    assert step == 0 and numbers == scalars(callback.found) and numbers["epoch0/forward_gain/net.0"] > 0
    page = tmp_path / "epoch0-checkup.html"
    assert trainer.loggers[0].files == [str(page)] and callback.found.verdict in page.read_text()
    for twin in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert isinstance(twin, e0.lightning.Checkup) and twin.settings == callback.settings


@pytest.mark.sample(1)
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("fail_on", ["never", "hard"])
def test_lightning_does_not_start_what_will_not_train(loader: Any, tmp_path: Path, fail_on: str) -> None:
    callback, model = e0.lightning.Checkup(fail_on=fail_on, page=False, trial=False, seconds=1.0), Module(40)
    trainer = lightning(loader, model, tmp_path)
    if fail_on == "never":
        callback.on_train_start(trainer, model)
    else:
        with pytest.raises(VerdictError) as refused:
            callback.on_train_start(trainer, model)
        assert str(refused.value) == str(callback.found)
    assert not callback.found.trains and not list(tmp_path.iterdir())
    assert trainer.loggers[0].told[0][1]["epoch0/trains"] == 0.0


@pytest.mark.usefixtures("libraries")
def test_hugging_face_gets_the_same(loader: Any, tmp_path: Path) -> None:
    class Labelled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = e0.networks.mlp([20, 16, 4], seed=0)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            scores = self.net(x)
            return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}

    batch = dict(zip(("x", "labels"), next(iter(loader)), strict=True))
    callback = e0.integrations.TrainerCheckup(trial=False, batch=batch)
    args = types.SimpleNamespace(output_dir=str(tmp_path / "out"), world_size=1)
    state = types.SimpleNamespace(is_world_process_zero=True, global_step=0, log_history=[])
    callback.on_train_begin(args, state, None, model=Labelled(), train_dataloader=loader)
    assert state.log_history == [{**scalars(callback.found), "step": 0}] and callback.found.trains
    assert (tmp_path / "out" / "epoch0-checkup.html").exists()
    spoilt = Labelled()
    nn.init.zeros_(spoilt.net[0].weight)
    hard = e0.integrations.TrainerCheckup(trial=False, fail_on="hard", page=False, batch=batch)
    with pytest.raises(VerdictError, match="ill not train"):
        hard.on_train_begin(args, state, None, model=spoilt, train_dataloader=loader)


def test_numbers_go_to_whatever_logger_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = e0.networks.mlp([8, 8, 4], seed=0), torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    gains, watch = e0.gain(net, x), e0.train.TrajectoryLengths(e0.Line(x[0], x[1]))
    watch(0, net)
    watch(5, net)
    told: list[Any] = []
    board = types.SimpleNamespace(add_scalar=lambda *given: told.append(given))
    log(board, gains, 3)
    assert ("epoch0/forward/0", gains.layers[0].forward, 3) in told
    run = types.SimpleNamespace(log=lambda numbers, step: told.append((step, numbers)))
    log(run, watch, 5)
    assert told[-1][0] == 5 and told[-1][1]["epoch0/length/2"] == pytest.approx(float(watch.lengths[1, 2]))
    trainer = types.SimpleNamespace(callback_handler=None, log=lambda numbers: told.append(numbers))
    log(trainer, {"a": 1.0})
    assert told[-1] == {"a": 1.0}
    with pytest.raises(InputError, match="a list is no logger; give one with log_metrics, add_scalar or log"):
        log([], gains)
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=run))
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(active_run=lambda: None))
    assert active() == [run]


def test_what_cannot_be_is_refused_when_the_callback_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs lightning, which is not installed: pip install lightning"):
        e0.lightning.Checkup()


@pytest.mark.usefixtures("libraries")
def test_arguments_are_those_of_the_checkup() -> None:
    with pytest.raises(InputError, match=r"no argument 'trail'. Did you mean 'trial'"):
        e0.lightning.Checkup(trail=False)
    with pytest.raises(InputError, match=r"fail_on='soft' is none of never, hard, fault"):
        e0.integrations.TrainerCheckup(fail_on="soft")
