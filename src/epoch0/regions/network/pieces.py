"""The network on each piece of a partition, where it is one affine map: patterns and slopes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from epoch0.regions.network.steps import Affine, Fold, Program

_CHUNK = 1 << 22  # numbers of one layer followed at a time
_NOTHING = 1e-14  # a pre-activation below this part of its terms' size at a piece's middle is zero on the whole piece


class Pieces(NamedTuple):
    """What the network does on each piece."""

    slopes: np.ndarray  # derivatives of the outputs along some directions, (directions, pieces, outputs)
    terms: np.ndarray  # size of the terms summed in each output's slope; below 1e-12 of it, two slopes are the same
    #: which elements are above each face, eight bits a byte, (pieces, bytes). Columns run over the layers, within a
    #: layer over its faces, within a face over its elements; a maximum has one column for every window and entry, set
    #: for the largest.
    patterns: np.ndarray


def follow(
    program: Program, count: int, inside: Callable[[slice], tuple[Tensor, Tensor]], squares: Sequence[Tensor]
) -> Pieces:
    """Slopes and patterns of so many pieces, all in one group of sizes.

    For some of them ``inside`` gives points, ``(pieces, *shape)``, and directions, (directions, pieces or 1, *shape).
    """
    size = max(1, _CHUNK // max(program.elements))
    parts = [_followed(program, *inside(slice(i, i + size)), squares) for i in range(0, count, size)]
    slopes, terms, patterns = zip(*parts, strict=True)
    return Pieces(np.concatenate(slopes, 1), np.max(terms, 0), np.concatenate(patterns))


@torch.no_grad()
def _followed(program: Program, points: Tensor, directions: Tensor, squares: Sequence[Tensor]) -> list[np.ndarray]:
    values, found = {0: points}, [torch.zeros(len(points), 0, dtype=torch.bool, device=points.device)]
    slopes = {0: directions.expand(len(directions), len(points), *points.shape[1:])}
    terms = {0: slopes[0].square().amax(dim=(0, 1))[None]}
    sizes = iter(squares)
    for step in program.through(values, slopes):
        inputs = [values[s] for s in step.inputs]
        values[step.output] = step.run(*inputs)
        if isinstance(step, Affine):
            slopes[step.output] = step.linear_of_each(*(slopes[s] for s in step.inputs))
            terms[step.output] = step.linear_size(*(terms[s] for s in step.inputs))
            continue
        size = next(sizes)[0].reshape(inputs[0].shape[1:])
        if isinstance(step, Fold):
            above = [inputs[0] - face > _NOTHING * (size + face * face).sqrt() for face in step.faces]
            slopes[step.output] = step.slope(inputs[0], above) * slopes[step.inputs[0]]
            found += [one.reshape(len(points), -1) for one in above]
        else:
            top = step.entries(inputs[0]).argmax(dim=2)
            chosen = step.windows.gather(1, top.T).T.expand(len(directions), -1, -1)
            slope = slopes[step.inputs[0]].reshape(len(directions), len(points), -1).gather(2, chosen)
            slopes[step.output] = slope.reshape(len(directions), len(points), *step.shape)
            found.append(torch.nn.functional.one_hot(top, step.windows.shape[1]).reshape(len(points), -1).bool())
        terms[step.output] = slopes[step.output].square().amax(dim=(0, 1))[None]
    slope = slopes[program.output].reshape(len(directions), len(points), -1)
    term = terms[program.output].reshape(-1).sqrt()
    return [slope.cpu().numpy(), term.cpu().numpy(), np.packbits(torch.cat(found, 1).cpu().numpy(), axis=1)]
