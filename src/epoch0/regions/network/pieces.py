"""The network on each piece of a partition, where it is one affine map: patterns, values and slopes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from epoch0.regions.certificate import Sizes
from epoch0.regions.network.steps import Affine, Fold, Program

_NOTHING = 1e-14  # a pre-activation below this part of its terms' size at a piece's middle is zero on the whole piece


@dataclass
class Pieces:
    """Points inside pieces, carried through the network together with directions."""

    values: Tensor  #: network outputs at the points, shape (pieces, outputs)
    slopes: Tensor  #: their derivatives along the directions, shape (directions, pieces, outputs)
    #: for each folding step and face, which elements are above it; (pieces, elements) each. For a maximum, which
    #: element of the window is the largest, one column for every window and entry.
    patterns: list[Tensor]
    terms: Tensor  #: size of the terms summed in each output's slope; below 1e-12 of it, two slopes are the same

    def packed(self) -> np.ndarray:
        """The patterns side by side, eight bits a byte, shape (pieces, bytes)."""
        none = torch.zeros(len(self.values), 0, dtype=torch.bool, device=self.values.device)
        return np.packbits(torch.cat([none, *self.patterns], 1).cpu().numpy(), axis=1)


@torch.no_grad()
def follow(program: Program, points: Tensor, directions: Tensor, sizes: Sizes, *, patterns: bool = False) -> Pieces:
    """Values, slopes and, if asked for, patterns at points inside pieces, all in one group of sizes.

    Points have the shape ``(pieces, *shape)``, directions (directions, pieces or 1, *shape).
    """
    values = {0: points}
    slopes = {0: directions.expand(len(directions), len(points), *points.shape[1:])}
    squares = {0: slopes[0].square().amax(dim=(0, 1))[None]}
    found: list[Tensor] = []
    number = 0
    for step in program.through(values, slopes):
        inputs = [values[s] for s in step.inputs]
        if isinstance(step, Affine):
            values[step.output] = step.run(*inputs)
            flat = linear_part(step, [slopes[s].flatten(0, 1) for s in step.inputs])
            slopes[step.output] = flat.reshape(len(directions), len(points), *flat.shape[1:])
            before = [squares[s] for s in step.inputs]
            squares[step.output] = step.size(*before) - step.size(*(torch.zeros_like(q) for q in before))
        elif isinstance(step, Fold):
            size = sizes.squares[number][0].reshape(inputs[0].shape[1:])
            above = [inputs[0] - face > _NOTHING * (size + face * face).sqrt() for face in step.faces]
            place = torch.stack(above).sum(dim=0)
            values[step.output] = step.run(inputs[0])
            slopes[step.output] = slopes_between(step, inputs[0][:1]).gather(0, place) * slopes[step.inputs[0]]
            found.extend(one.reshape(len(points), -1) for one in above if patterns)
        else:
            windows = step.windows.to(inputs[0].device)
            top = inputs[0].reshape(len(points), -1)[:, windows].argmax(dim=2)
            values[step.output] = step.run(inputs[0])
            flat = slopes[step.inputs[0]].reshape(len(directions), len(points), -1)
            chosen = windows.gather(1, top.T).T
            slope = flat.gather(2, chosen.expand(len(directions), -1, -1))
            slopes[step.output] = slope.reshape(len(directions), len(points), *step.shape)
            if patterns:
                found.append(torch.nn.functional.one_hot(top, step.windows.shape[1]).reshape(len(points), -1).bool())
        if not isinstance(step, Affine):
            number += 1
            squares[step.output] = slopes[step.output].square().amax(dim=(0, 1))[None]
    output, slope = values[program.output], slopes[program.output]
    return Pieces(output.reshape(len(points), -1), slope.reshape(len(directions), len(points), -1), found,
                  squares[program.output].reshape(-1).sqrt())  # fmt: skip


def linear_part(step: Affine, rows: list[Tensor]) -> Tensor:
    """An affine step without its constant part."""
    found = step.run(*rows)
    return found - step.run(*(torch.zeros_like(t[:1]) for t in rows)) if step.biased else found


def slopes_between(step: Fold, row: Tensor) -> Tensor:
    """Slopes of the function between its faces, from the lowest stretch on, for one row: (faces + 1, *shape)."""
    low, high = step.faces[0], step.faces[-1]
    inner = [(a + 0.25 * (b - a), a + 0.5 * (b - a)) for a, b in pairwise(step.faces)]
    stretches = [(low - 2, low - 1), *inner, (high + 1, high + 2)]
    ends = [(step.run(torch.full_like(row, a)), step.run(torch.full_like(row, b))) for a, b in stretches]
    return torch.cat([(last - first) / (b - a) for (first, last), (a, b) in zip(ends, stretches, strict=True)])
