"""The same lines through many networks of one kind: one walk whose rows belong to different networks."""

from dataclasses import replace

import torch
from torch import Tensor

from epoch0.networks.ensemble import Ensemble
from epoch0.regions._cut_lines import partitions
from epoch0.regions._line_partition import LinePartition, LinePartitions
from epoch0.regions._steps import Affine, Program
from epoch0.regions._walk import BLOCK


def cut_ensemble(nets: Ensemble, program: Program, corners: Tensor, kind: str, memory: float) -> LinePartitions:
    """The same lines through every network of an ensemble, many networks in one walk.

    Args:
        nets: the ensemble.
        program: its first network.
        corners: of the lines, ``(lines, corners, *shape)``.
        kind: as for a LinePartition.
        memory: bytes.
    """
    lines = len(corners)
    at_once = max(1, int(min(memory / 8, BLOCK) / (16 * nets.spec.parameters + 16 * lines * sum(program.sizes))))
    found: list[LinePartition] = []
    for start in range(0, len(nets), at_once):
        stop = min(start + at_once, len(nets))
        stacked = {name: tensor.double() for name, tensor in nets.stacked(start, stop).items()}
        pairs = nets.spec.names()
        stacks = {weight.removesuffix(".weight"): (stacked[weight], stacked[bias]) for weight, bias in pairs}
        together = _with_stacks(program, stacks)
        programs = [_with_weights(program, stacks, i) for i in range(stop - start)]
        network = torch.arange(stop - start).repeat_interleave(lines)
        every = corners.repeat(stop - start, *[1] * (corners.dim() - 1))
        found.extend(partitions(together, every, kind, (), memory, network, programs))
    return LinePartitions(tuple(found), len(nets))


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
