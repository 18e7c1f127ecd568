"""A checkup one block at a time, against the ordinary one of the same weights."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import epoch0 as e0
from epoch0.errors import InputError


def network() -> nn.Sequential:
    """One with weights, or under ``torch.device("meta")`` without."""
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


def empty() -> nn.Sequential:
    with torch.device("meta"):
        return network()


def saved(folder: Path, **changes: torch.Tensor) -> nn.Module:
    """A network whose weights lie in two files of a folder, as large checkpoints do."""
    net = network()
    state = {**net.state_dict(), **changes}
    names = sorted(state)
    for part, some in enumerate((names[::2], names[1::2])):
        save_file({name: state[name].contiguous() for name in some}, folder / f"model-{part}.safetensors")
    return net


@pytest.mark.parametrize("targets", [True, False])
def test_rows_are_those_of_the_ordinary_checkup(targets: bool, tmp_path: Path) -> None:
    net, without, (x, y) = saved(tmp_path), empty(), batch()
    given = y if targets else None
    one = e0.checkup(net, x, given, directions=4, trial=False, remedies=False).to_dict()
    other = e0.checkup(without, x, given, directions=4, stream=tmp_path).to_dict()
    assert all(p.device.type == "meta" for p in without.parameters())
    assert len(one["layers"]) == 5
    for key in ("layers", "forward", "backward", "input_gradient", "chi", "phase"):
        assert alike(one[key], other[key]), key


def test_nothing_is_judged_that_was_not_measured() -> None:
    found = e0.checkup(empty(), *batch(), stream=True)
    assert (found.outcome, found.trains, found.recipes) == ("not judged", False, {})
    assert len(found.not_examined) == 2 and "Not judged" in str(found)


def test_meta_gets_the_same_fresh_weights_each_time_and_stays_empty() -> None:
    net, (x, y) = empty(), batch()
    one, two, other = (e0.checkup(net, x, y, stream=True, seed=seed).to_dict() for seed in (0, 0, 1))
    assert one == two and one["layers"] != other["layers"]
    assert all(p.device.type == "meta" for p in net.parameters())
    assert one["layers"][0]["predicted"] == pytest.approx(1 / 3, rel=0.6)  # torch's own: 1 / (3 fan_in), times 1 / 2 q


def test_an_empty_model_of_half_precision_is_computed_in_float32() -> None:
    one, other = (e0.checkup(net, *batch(), stream=True).to_dict()["layers"] for net in (empty(), empty().bfloat16()))
    assert one == other


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
    ("kind", "said"), [(Odd, "no list of blocks"), (Skips, "another path"), (SkipsAtTheEnd, "another path")]
)
def test_what_is_no_stack_of_blocks_is_refused(kind: type[nn.Module], said: str) -> None:
    with torch.device("meta"):
        net = kind()
    with pytest.raises(InputError, match=said):
        e0.checkup(net, *batch()[:1], stream=True)


def test_what_needs_all_weights_is_refused() -> None:
    with pytest.raises(InputError, match="sparsity= needs the whole network"):
        e0.checkup(empty(), *batch(), stream=True, sparsity=0.1)


def test_the_command_refuses_what_cannot_be_streamed() -> None:
    from typer.testing import CliRunner

    from epoch0.cli import app

    done = CliRunner().invoke(app, ["checkup", "torch.nn:Identity", "--stream"])
    assert done.exit_code == 2 and "--stream takes hf:config.json" in done.output


def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    x, y = batch()
    with pytest.raises(InputError, match=r"has no \.safetensors"):
        e0.checkup(empty(), x, y, stream=tmp_path)
    net = saved(tmp_path, **{"1.weight": torch.zeros(4, 3)})
    with pytest.raises(InputError, match=r"holds no '1.weight' of shape \(4, 32\)"):
        e0.checkup(empty(), x, y, stream=tmp_path)
    with pytest.raises(InputError, match=r"'0\.0\.weight' has numbers already; stream=True takes"):
        e0.checkup(net, x, y, stream=tmp_path)
    save_file({"0.0.weight": torch.zeros(32, 32)}, tmp_path / "model-0.safetensors")
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(InputError, match=r"holds no '0.0.bias'"):
        e0.checkup(empty(), x, y, stream=tmp_path)
