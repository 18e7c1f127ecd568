"""Lines through the walk: which points to start from, how many lines at once, what the walk's arrays mean."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from epoch0.regions._certificate import Certificate
from epoch0.regions._ledger import Ledger
from epoch0.regions._line import Lines
from epoch0.regions._line_partition import LinePartition, sample
from epoch0.regions._report import Progress
from epoch0.regions._sizes import Sizes
from epoch0.regions._spread import Crew
from epoch0.regions._steps import Program
from epoch0.regions._walk import MEMORY, block, check_room, crew_for, walk

_SIZES = 48 << 20  # bytes of the sizes of lines that are cut together
_BYTES = 250  # of one break point: its place, owner and group, twice while parts are put together, and the result


def cut_lines(
    program: Program, corners: Tensor, kind: str, notes: tuple[str, ...] = (), memory: float = MEMORY,
    workers: int = 1, progress: Progress | None = None,
) -> list[LinePartition]:  # fmt: skip
    """Partitions of lines given by their corners, shape (lines, corners, *shape)."""
    check_room(program, memory)
    found: list[LinePartition] = []
    # the sizes of all lines taken at once are held until the last is cut
    at_once = max(1, int(min(_SIZES, memory / 8)) // (16 * (corners[0].numel() + sum(program.sizes))))
    ledger = ledger_for(program, len(corners), memory)
    with crew_for(workers, memory, progress) as crew:
        for part in corners.split(at_once):
            share = len(part) / len(corners)
            found.extend(partitions(program, part, kind, notes, memory, crew, ledger, share))
        crew.report.finish(f"{ledger.cells} regions")
    return found


def ledger_for(program: Program, lines: int, memory: float) -> Ledger:
    """Counts the regions of lines, and refuses those beyond the memory."""
    advice = "give more memory, or cut fewer or shorter lines at a time"
    return Ledger(tuple(step.name for step in program.folds), memory, lines, _BYTES, "regions", advice)


def walked(
    program: Program, corners: Tensor, kind: str, memory: float, crew: Crew, ledger: Ledger, share: float,
    network: Tensor | None = None,
) -> Lines:  # fmt: skip
    """The lines cut along every fold; ``network`` says whose each line is, where there are many."""
    lines, per_line = corners.shape[:2]
    device = corners.device
    t = torch.linspace(0, 1, per_line, dtype=torch.float64, device=device).repeat(lines)
    points, away = corners.reshape(lines * per_line, *corners.shape[2:]), torch.zeros_like(t, dtype=torch.int64)
    samples = torch.stack([sample(one) for one in corners])
    group = torch.arange(lines, device=device).repeat_interleave(samples.shape[1])
    samples = samples.reshape(-1, *corners.shape[2:])
    infinite = torch.zeros(lines, dtype=torch.bool, device=device)
    line = torch.arange(lines, device=device).repeat_interleave(per_line)
    own = line.clone()
    if kind in ("ray", "line"):
        out = corners[:, 1] - corners[:, 0]
        backwards = kind == "line"
        ends = [-out, corners[:, 0], out] if backwards else [corners[:, 0], out]
        points = torch.stack(ends, 1).reshape(-1, *out.shape[1:])
        far = math.inf
        t = torch.tensor([-far, 0.0, far] if backwards else [0.0, far], dtype=torch.float64, device=device)
        away = torch.tensor([-1, 0, 1] if backwards else [0, 1], device=device).repeat(lines)
        line = torch.arange(lines, device=device).repeat_interleave(len(t))
        t = t.repeat(lines)
        own = torch.where(away == 0, line, line + lines)  # directions have sizes of their own, without biases
        samples = torch.cat([samples, out])
        group = torch.cat([group, lines + torch.arange(lines, device=device)])
        infinite = torch.cat([infinite, ~infinite])
    if network is not None and kind in ("ray", "line"):
        network = network.repeat(2)
    complex_ = Lines(line, t, away, own, network, ledger)
    with torch.no_grad():
        sizes = Sizes.measure(program, samples, group, infinite, network)
        found = walk(program, complex_, {0: points}, sizes, block(memory), crew, share=share)
    assert isinstance(found, Lines)
    return found


def partitions(
    program: Program, corners: Tensor, kind: str, notes: tuple[str, ...], memory: float, crew: Crew, ledger: Ledger,
    share: float = 1.0,
    network: Tensor | None = None, programs: Sequence[Program] = (),
) -> list[LinePartition]:  # fmt: skip
    """Partitions of lines that are cut together; with many networks, each line's network and their programs.

    Args:
        program: the network.
        corners: of the lines.
        kind: as for a LinePartition.
        notes: for every partition.
        memory: bytes.
        crew: who does the pieces.
        ledger: of all lines, also of those cut before.
        share: the part of the whole work that these lines are.
        network: of each line.
        programs: of each network.
    """
    complex_ = walked(program, corners, kind, memory, crew, ledger, share, network)
    breaks = complex_.step[complex_.order] >= 0
    order, line = complex_.order[breaks], complex_.line[breaks].cpu().numpy()
    arrays = [getattr(complex_, name)[order].cpu().numpy() for name in ("t", "step", "element", "face")]
    ends = np.searchsorted(line, np.arange(len(corners) + 1))
    layers = tuple(step.name for step in program.folds)
    found = []
    for i in range(len(corners)):
        t, step, element, face = (one[ends[i] : ends[i + 1]] for one in arrays)
        certificate = Certificate.of(complex_.decisions, ordered=bool((np.diff(t) >= 0).all()))
        per_layer = tuple((1 + np.cumsum(np.bincount(step, minlength=len(layers)))).tolist())
        found.append(LinePartition(
            corners[i], kind, t, layers, step, element, face, per_layer, certificate, (*notes, *program.notes),
            program.neurons, program if network is None else programs[int(network[i])],
        ))  # fmt: skip
    return found
