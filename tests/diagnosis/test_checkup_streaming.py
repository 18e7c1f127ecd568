"""A checkup one block at a time, against the ordinary one of the same weights."""

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import epoch0 as e0
from epoch0.diagnosis import streaming
from epoch0.diagnosis.streaming import plan
from epoch0.errors import InputError
from epoch0.tracing.call import Call


def network() -> nn.Sequential:
    torch.manual_seed(0)
    parts = [part for _ in range(4) for part in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())]
    return nn.Sequential(nn.Sequential(*parts), nn.Linear(32, 4))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    return torch.randn(20, 32, generator=source), torch.randint(4, (20,), generator=source)


def alike(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(key == "update" or alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5)
    return one == other


LOSSES: dict[str, Any] = {
    "targets": lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1),
    "nothing": lambda outputs, _: outputs.square().mean(),
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("given", LOSSES)
def test_rows_are_those_of_the_ordinary_checkup(given: str, own: bool) -> None:
    """With targets and without, and with a loss of the user's that reads them or not."""
    net, (x, y) = network(), batch()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    targets, loss = y if given == "targets" else None, LOSSES[given] if own else None
    one = e0.checkup(net, x, targets, loss=loss, directions=4, trial=False, remedies=False).to_dict()
    other = e0.checkup(net, x, targets, loss=loss, directions=4, stream=True).to_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert len(one["layers"]) == 5
    for key in ("layers", "forward", "backward", "input_gradient", "chi", "phase"):
        assert alike(one[key], other[key]), key


def test_nothing_is_judged_that_was_not_measured() -> None:
    found = e0.checkup(network(), *batch(), stream=True)
    assert (found.outcome, found.trains, found.recipes) == ("not judged", False, {})
    assert len(found.not_examined) == 2 and "Not judged" in str(found)


def test_meta_gets_the_same_fresh_weights_each_time_and_stays_empty() -> None:
    with torch.device("meta"):
        net = network()
    x, y = batch()
    one, two, other = (e0.checkup(net, x, y, stream=True, seed=seed).to_dict() for seed in (0, 0, 1))
    assert one == two and one["layers"] != other["layers"]
    assert all(p.device.type == "meta" for p in net.parameters())
    assert one["layers"][0]["predicted"] == pytest.approx(1 / 3, rel=0.6)  # torch's own: 1 / (3 fan_in), times 1 / 2 q


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Residual() for _ in range(8)), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.slow
def test_borders_of_half_precision_are_kept_in_bfloat16_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[torch.dtype] = []
    forward = streaming._Run.forward

    def looked_at(run: Any, index: int) -> Any:
        kept.extend(border.dtype for border in run.inputs)
        return forward(run, index)

    monkeypatch.setattr(streaming._Run, "forward", looked_at)
    reports, dtypes = [], (torch.float32, torch.bfloat16, torch.float16)
    for dtype in dtypes:
        kept.clear()
        with torch.device("meta"):
            net = Stack().to(dtype)
        reports.append(e0.checkup(net, *batch(), stream=True).to_dict())
        assert set(kept) == {torch.float32 if dtype is torch.float32 else torch.bfloat16}
    exact, *coarse = reports
    for report in coarse:
        assert report["layers"] != exact["layers"]  # it was rounded
        for one, other in zip(exact["layers"], report["layers"], strict=True):
            for key in ("norm_out", "tangent", "gradient", "forward_gain", "backward_gain", "dissimilarity"):
                assert other[key] == pytest.approx(one[key], rel=0.005), (one["name"], key)


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).relu())


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = block(x) + first
        return x


class SkipsAtTheEnd(Skips):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = block(x)
        return x + first


@pytest.mark.parametrize(
    ("net", "said"), [(Odd(), "no list of blocks"), (Skips(), "another path"), (SkipsAtTheEnd(), "another path")]
)
def test_what_is_no_stack_of_blocks_is_refused(net: nn.Module, said: str) -> None:
    with pytest.raises(InputError, match=said):
        e0.checkup(net, *batch()[:1], stream=True)


def test_what_needs_all_weights_is_refused() -> None:
    with pytest.raises(InputError, match="sparsity= needs the whole network"):
        e0.checkup(network(), *batch(), stream=True, sparsity=0.1)


def test_the_command_refuses_what_cannot_be_streamed() -> None:
    from typer.testing import CliRunner

    from epoch0.cli import app

    done = CliRunner().invoke(app, ["checkup", "torch.nn:Identity", "--stream"])
    assert done.exit_code == 2 and "--stream takes hf:config.json" in done.output
    done = CliRunner().invoke(app, ["checkup", "torch.nn:Identity", "--dry-run"])
    assert done.exit_code == 2 and "give both" in done.output


def saved(folder: Path, **changes: torch.Tensor) -> nn.Module:
    """A network whose weights lie in two files of a folder, as large checkpoints do."""
    net = network()
    state = {**net.state_dict(), **changes}
    names = sorted(state)
    for part, some in enumerate((names[::2], names[1::2])):
        save_file({name: state[name].contiguous() for name in some}, folder / f"model-{part}.safetensors")
    return net


def test_weights_come_from_a_folder_of_safetensors(tmp_path: Path) -> None:
    net, (x, y) = saved(tmp_path), batch()
    with torch.device("meta"):
        empty = network()
    one = e0.checkup(net, x, y, stream=True).to_dict()
    assert alike(one["layers"], e0.checkup(empty, x, y, stream=tmp_path).to_dict()["layers"])
    assert all(p.device.type == "meta" for p in empty.parameters())


def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    x, y = batch()
    with torch.device("meta"):
        empty = network()
    with pytest.raises(InputError, match=r"has no \.safetensors"):
        e0.checkup(empty, x, y, stream=tmp_path)
    net = saved(tmp_path, **{"1.weight": torch.zeros(4, 3)})
    with pytest.raises(InputError, match=r"'1.weight' in .* is \(4, 3\), not \(4, 32\)"):
        e0.checkup(empty, x, y, stream=tmp_path)
    with pytest.raises(InputError, match="this one has its own"):
        e0.checkup(net, x, y, stream=tmp_path)
    save_file({"0.0.weight": torch.zeros(32, 32)}, tmp_path / "model-0.safetensors")
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(InputError, match=r"holds no '0.0.bias'"):
        e0.checkup(empty, x, y, stream=tmp_path)


def test_a_plan_says_what_streaming_takes() -> None:
    with torch.device("meta"):
        net = nn.Sequential(*[part for _ in range(12) for part in (nn.Linear(512, 512), nn.ReLU())], nn.Linear(512, 4))
    x, y = torch.randn(64, 512), torch.arange(64) % 4
    call = Call.of(net, x, y, empty=True)
    plan(call, torch.argmax)  # what is slow the first time
    found, started = plan(call, torch.argmax), time.perf_counter()
    e0.checkup(net, x, y, stream=True)
    lasts = time.perf_counter() - started
    assert found.blocks == 13 and found.parameters == sum(p.numel() for p in net.parameters())
    assert lasts / 4 < found.seconds < lasts * 4 and found.tried < found.seconds
    assert found.memory > 13 * 64 * 512 * 4 and "13 blocks" in str(found)
    assert all(p.device.type == "meta" for p in net.parameters())


@pytest.mark.sample(1)
@pytest.mark.parametrize("targets", [True, False])
def test_killed_and_called_again_it_goes_on_where_it_was(
    targets: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "EACH", 0.0)
    monkeypatch.setattr(streaming, "cache_folder", lambda: tmp_path / "cache")
    file, (x, y) = tmp_path / "cache/streaming.pt", batch()

    def report(**settings: Any) -> dict[str, Any]:
        with torch.device("meta"):
            net = network()
        found = e0.checkup(net, x, y if targets else None, stream=True, **settings).to_dict()
        return {key: value for key, value in found.items() if key not in ("seconds", "notes")}

    whole, blocks = report(), 5
    assert not file.exists()

    def stopped(after: int) -> None:
        seen: list[str] = []

        def tell(what: str, share: float) -> None:
            seen.append(what)
            if len(seen) > after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            report(tell=tell)

    for stop in range(1, 2 * blocks - 1) if targets else (1, blocks, 2 * blocks - 2):
        stopped(stop)
        assert file.exists()
        left: list[str] = []
        assert alike(report(tell=lambda what, share, left=left: left.append(what)), whole)
        assert len(left) == 2 * blocks - 1 - stop
        assert not file.exists()
    stopped(3)
    kept = file.read_bytes()
    file.write_bytes(kept[:-20])
    assert alike(report(), whole)  # a torn file is no state
    file.write_bytes(kept)
    assert not alike(report(seed=1), whole)  # nor is that of another run
