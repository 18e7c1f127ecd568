"""The same lines through many networks of one kind: one walk whose rows belong to different networks."""

from dataclasses import replace

import torch
from torch import Tensor

from epoch0.networks.ensemble import Ensemble
from epoch0.regions._cut_lines import ledger_for, partitions
from epoch0.regions._ledger import Ledger
from epoch0.regions._line_partition import LinePartition, LinePartitions
from epoch0.regions._report import Progress
from epoch0.regions._spread import Crew
from epoch0.regions._steps import Affine, Program
from epoch0.regions._walk import block, check_room, crew_for


def cut_ensemble(
    nets: Ensemble, program: Program, corners: Tensor, kind: str, memory: float, workers: int = 1,
    progress: Progress | None = None,
) -> LinePartitions:  # fmt: skip
    """The same lines through every network of an ensemble, many networks in one walk.

    Args:
        nets: the ensemble.
        program: its first network.
        corners: of the lines, ``(lines, corners, *shape)``.
        kind: as for a LinePartition.
        memory: bytes.
        workers: threads.
        progress: is told how far the work is.
    """
    check_room(program, memory)
    lines = len(corners)
    ledger = ledger_for(program, len(nets) * lines, memory)
    with crew_for(workers, memory, progress) as crew:
        found = _in_blocks(nets, program, corners, kind, memory, crew, ledger)
        crew.report.finish(f"{ledger.cells} regions")
    return LinePartitions(tuple(found), len(nets))


def _in_blocks(
    nets: Ensemble, program: Program, corners: Tensor, kind: str, memory: float, crew: Crew, ledger: Ledger
) -> list[LinePartition]:
    """So many networks at a time as the memory is enough for."""
    lines = len(corners)
    at_once = max(1, int(block(memory) / (16 * nets.spec.parameters + 16 * lines * sum(program.sizes))))
    found: list[LinePartition] = []
    for start in range(0, len(nets), at_once):
        stop = min(start + at_once, len(nets))
        stacked = {name: tensor.double() for name, tensor in nets.stacked(start, stop).items()}
        pairs = nets.spec.names()
        stacks = {weight.removesuffix(".weight"): (stacked[weight], stacked[bias]) for weight, bias in pairs}
        together = _with_stacks(program, stacks)
        programs = [_with_weights(program, stacks, i) for i in range(stop - start)]
        network = torch.arange(stop - start, device=corners.device).repeat_interleave(lines)
        every = corners.repeat(stop - start, *[1] * (corners.dim() - 1))
        share = (stop - start) / len(nets)
        found.extend(partitions(together, every, kind, (), memory, crew, ledger, share, network, programs))
    return found


def _with_stacks(program: Program, stacks: dict[str, tuple[Tensor, Tensor]]) -> Program:
    """The steps of one network with the weights of many."""

    def other(step: Affine) -> Affine:
        return replace(step, stack=stacks[step.name], biased=True)

    return replace(program, steps=tuple(
        other(step) if isinstance(step, Affine) and step.name in stacks else step for step in program.steps
    ))  # fmt: skip


def _with_weights(program: Program, stacks: dict[str, tuple[Tensor, Tensor]], which: int) -> Program:
    """The steps of one network with the weights of another."""

    def other(step: Affine) -> Affine:
        weight, bias = (tensor[which] for tensor in stacks[step.name])
        return replace(
            step, run=lambda x: torch.nn.functional.linear(x, weight, bias),
            size=lambda q: torch.nn.functional.linear(q, weight.square(), bias.square()), biased=True,
        )  # fmt: skip

    return replace(program, steps=tuple(
        other(step) if isinstance(step, Affine) and step.name in stacks else step for step in program.steps
    ))  # fmt: skip
