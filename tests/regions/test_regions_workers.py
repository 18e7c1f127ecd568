"""Pieces spread over threads: the same result to the last bit, one clear error, a clean stop; and how far it is."""

import io
import threading
import time

import numpy as np
import pytest
import torch

from epoch0 import regions
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.meter import Shares
from epoch0.networks import ensemble
from epoch0.regions.workers import ThreadPool
from region_twins import networks

NETWORKS = networks()


def ends(shape: tuple[int, ...], lines: int = 4) -> torch.Tensor:
    return torch.randn(2, lines, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_pieces_within_pieces_come_back_in_order(workers: int) -> None:
    threads, seen = torch.get_num_threads(), set()

    def leaves(depth: int, first: int) -> list[int]:
        seen.add(threading.current_thread().name)
        if depth == 0:
            time.sleep(0.002)
            return [first]
        parts = pool.map(lambda i: leaves(depth - 1, 3 * first + i), range(3))
        return [leaf for part in parts for leaf in part]

    with ThreadPool(workers) as pool:
        assert leaves(4, 0) == list(range(81))
    assert torch.get_num_threads() == threads
    assert len(seen) == 1 if workers == 1 else len(seen) > 1
    assert not [t for t in threading.enumerate() if t.name.startswith("regions")]


def test_the_first_failure_stops_all_and_is_raised_as_it_is() -> None:
    done = []

    def piece(number: int) -> int:
        pool.check()
        if number == 3:
            raise InputError("the third piece is too large.")
        time.sleep(0.01)
        done.append(number)
        return number

    with pytest.raises(InputError, match="third piece"), ThreadPool(3) as pool:
        pool.map(piece, range(200))
    assert len(done) < 20
    assert not [t for t in threading.enumerate() if t.name.startswith("regions")]


def test_threads_see_the_stop_and_keep_the_mode_of_the_caller() -> None:
    modes, stopped = [], threading.Event()

    def piece(number: int) -> None:
        modes.append(torch.is_grad_enabled())
        if number == 1:
            time.sleep(0.02)
            raise KeyboardInterrupt
        try:
            for _ in range(2000):
                pool.check()
                time.sleep(0.001)
        except KeyboardInterrupt:
            stopped.set()
            raise

    with pytest.raises(KeyboardInterrupt), torch.no_grad(), ThreadPool(2) as pool:
        pool.map(piece, range(2))
    assert stopped.is_set() and modes == [False, False]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["segment", "line"])
def test_workers_change_no_bit(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = NETWORKS[name]
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 3000)
    alone = regions.on_line(model, *ends(shape), kind=kind)
    for workers in (2, 3):
        together = regions.on_line(model, *ends(shape), kind=kind, workers=workers)
        for one, other in zip(alone, together, strict=True):
            assert np.array_equal(one.breakpoints, other.breakpoints)
            assert one.owner == other.owner and one.per_layer == other.per_layer
            assert one.certificate == other.certificate


def test_workers_of_ensembles_and_curves() -> None:
    nets = ensemble(5, [4, 9, 9, 2], biases=Gaussian(0.3), seed=3)
    x0, x1 = ends((4,))
    one, other = regions.on_line(nets, x0, x1, memory=3e5), regions.on_line(nets, x0, x1, memory=3e5, workers=2)
    assert all(np.array_equal(a.breakpoints, b.breakpoints) for a, b in zip(one, other, strict=True))
    model, _ = NETWORKS["dense"]
    curve = regions.on_curve
    from epoch0.curves import Arc

    arc = Arc(torch.tensor([1.0, 0, 0]), torch.tensor([0, 2.0, 1]))
    assert curve(model, arc, workers=2).breakpoints.tolist() == curve(model, arc).breakpoints.tolist()


def test_a_user_who_interrupts_is_obeyed() -> None:
    model, shape = NETWORKS["skip"]

    def progress(done: float, what: str) -> None:
        if done > 0.2:
            raise KeyboardInterrupt

    threads = torch.get_num_threads()
    for workers in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            regions.on_line(model, *ends(shape), workers=workers, progress=progress)
    assert torch.get_num_threads() == threads
    assert not [t for t in threading.enumerate() if t.name.startswith("regions")]


def test_bad_numbers_of_workers() -> None:
    model, shape = NETWORKS["dense"]
    for workers in (0, -2, True):
        with pytest.raises(InputError, match="workers"):
            regions.on_line(model, *ends(shape), workers=workers)


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_grows_to_one(
    workers: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 20_000)
    for name in ("skip", "convolutional", "overlapping pool"):
        model, shape = NETWORKS[name]
        seen: list[tuple[float, str]] = []
        lines = regions.on_line(model, *ends(shape), workers=workers, progress=lambda d, w, s=seen: s.append((d, w)))
        done = [d for d, _ in seen]
        assert done == sorted(done) and done[-1] == 1.0 and len(done) > 5 and done[-2] > 0.8
        assert seen[0][1].startswith("layer 1 of") and seen[-1][1] == f"{lines.count} regions"
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_in_a_log_and_on_a_terminal() -> None:
    log = io.StringIO()
    with Shares("regions", log, every=0.0) as shown:
        pool = ThreadPool(progress=shown)
        pool.advance(0.25, "layer 1 of 4")
        pool.advance(1.0, "9 regions")
    assert log.getvalue().splitlines()[0].startswith("regions: 25 % done, layer 1 of 4, about")
    assert log.getvalue().splitlines()[1].startswith("regions: 100 % done, 9 regions")
    quiet = io.StringIO()
    with Shares("regions", quiet, every=60.0) as shown:
        shown(0.5, "layer 1 of 4")
    assert quiet.getvalue() == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with Shares("regions", terminal) as shown:
        shown(0.5, "layer 1 of 4")
    assert "regions: layer 1 of 4" in terminal.getvalue() and "50%" in terminal.getvalue()
