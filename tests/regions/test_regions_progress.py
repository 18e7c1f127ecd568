"""What is said on the way of a long walk, and in a log or on a terminal."""

import io

import pytest
import torch

from epoch0 import regions
from epoch0.progress import FractionProgress
from region_twins import networks, recipe

NETWORKS = networks()
SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)


def ends(shape: tuple[int, ...], lines: int = 4) -> torch.Tensor:
    return torch.randn(2, lines, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recipe([2, 32, 32, 32, 1], 0.1)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 50_000)
    for run in (regions.on_plane, regions.count):
        told: list[tuple[float, str]] = []
        run(net, SQUARE, progress=lambda done, what: told.append((done, what)))  # noqa: B023
        done = [part for part, _ in told]
        assert done == sorted(done) and done[-1] == 1.0 and len(told) > 10
        assert "layer" in told[5][1] and "cells" in told[-1][1]


def test_a_user_who_interrupts_is_obeyed() -> None:
    model, shape = NETWORKS["skip"]

    def progress(done: float, what: str) -> None:
        if done > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regions.on_line(model, *ends(shape), progress=progress)


def test_progress_grows_to_one(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 20_000)
    for name in ("skip", "convolutional", "overlapping pool"):
        model, shape = NETWORKS[name]
        seen: list[tuple[float, str]] = []
        lines = regions.on_line(model, *ends(shape), progress=lambda d, w, s=seen: s.append((d, w)))
        done = [d for d, _ in seen]
        assert done == sorted(done) and done[-1] == 1.0 and len(done) > 5 and done[-2] > 0.8
        assert seen[0][1].startswith("layer 1 of") and seen[-1][1] == f"done, {lines.count} regions"
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_in_a_log_and_on_a_terminal() -> None:
    log = io.StringIO()
    with FractionProgress("regions", log, every=0.0) as shown:
        shown(0.0, "layer 1 of 4")
        shown(0.25, "layer 2 of 4")
        shown(1.0, "9 regions")
    lines = log.getvalue().splitlines()
    assert lines[0].startswith("regions: 0 % done, layer 1 of 4") and "about" not in lines[0]
    assert lines[1].startswith("regions: 25 % done, layer 2 of 4, about")
    assert any(line.startswith("regions: 100 % done, 9 regions") for line in lines[2:])
    quiet = io.StringIO()
    with FractionProgress("regions", quiet, every=60.0) as shown:
        shown(0.5, "layer 1 of 4")
    assert quiet.getvalue() == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with FractionProgress("regions", terminal) as shown:
        shown(0.5, "layer 1 of 4")
    assert "regions: layer 1 of 4" in terminal.getvalue() and "50%" in terminal.getvalue()


def test_what_was_done_before_it_went_on_is_not_counted_as_quick() -> None:
    log = io.StringIO()
    with FractionProgress("checkup", log, every=60.0) as shown:
        shown(0.8, "block 8 of 10")
        shown._begun -= 100.0  # as if these took so long
        shown(0.9, "block 9 of 10")
        assert "90 % done, block 9 of 10, about 100 s left" in shown._said
    with FractionProgress("checkup", log, every=60.0) as shown:
        shown._begun -= 100.0  # a first share that took its time
        shown(0.5, "block 5 of 10")
        assert "about 100 s left" in shown._said
