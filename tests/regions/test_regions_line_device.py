"""Lines stay on the model's device: every tensor the walk makes from nothing is made there, nothing is fetched back."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from epoch0 import regions
from epoch0.curves import Line
from epoch0.regions import lines
from region_twins import networks

NETWORKS = networks()
FACTORIES = {
    torch.arange, torch.linspace, torch.zeros, torch.ones, torch.empty, torch.full, torch.tensor, torch.eye, torch.rand,
    torch.randn, torch.as_tensor,
}  # fmt: skip
FETCHING = {torch.Tensor.cpu, torch.Tensor.numpy, torch.from_numpy}
ON_THE_CPU_ONLY = {"hats", "_where"}  # branches that look at the device first


class Watch(TorchFunctionMode):
    """Notes calls of our own code that make a tensor without saying where, or that need it on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.homeless: list[str] = []
        self.fetched: list[str] = []
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.calls += 1
        frame = sys._getframe(1)
        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        ours = "epoch0" in frame.f_code.co_filename
        if ours and func in FACTORIES and "device" not in kwargs and not any(isinstance(a, torch.Tensor) for a in args):
            self.homeless.append(where)
        if ours and func in FETCHING and frame.f_code.co_name not in ON_THE_CPU_ONLY:
            self.fetched.append(where)
        return func(*args, **kwargs)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["segment", "line"])
def test_every_tensor_of_the_walk_is_made_on_its_device(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = NETWORKS[name]
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 20_000)
    watch, walked = Watch(), lines.walked

    def watched(*args: Any, **kwargs: Any) -> Any:
        with watch:
            return walked(*args, **kwargs)

    monkeypatch.setattr(lines, "walked", watched)
    x0, x1 = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    regions.on_line(model, x0, x1, kind=kind)
    regions.on_curve(model, Line(x0[0], x1[0]), pieces=9)
    assert watch.calls > 100
    assert watch.homeless == [] and watch.fetched == []


def test_the_watch_sees_what_it_should() -> None:
    def epoch0_like(code: str) -> Watch:
        watch = Watch()
        with watch:
            exec(compile(code, "epoch0/somewhere.py", "exec"), {"torch": torch})
        return watch

    assert epoch0_like("torch.arange(3)").homeless and epoch0_like("torch.zeros(2).numpy()").fetched
    assert not epoch0_like("torch.arange(3, device='cpu')").homeless
