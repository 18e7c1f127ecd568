"""Mean squared stretch of linear operations without learnt products: averages over places, scalings, fixed norms.

Averages are told apart from the rest: on the main path weights do not make up for them (Hayou et al. 2021, B.1.2).
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from epoch0.initialization.follow import affine_of, is_average, only_moves
from epoch0.seeds import generator
from epoch0.tracing.graph import Op
from epoch0.tracing.tape import Tape

ENOUGH = 2_000_000
"""Outputs of an operation over which its stretch is estimated: an error of 0.1 percent, 0.3 where windows overlap."""

_MIXES = ("select", "repeat")


def stretch(tape: Tape, trail: tuple[Op, ...], profile: Tensor | None = None) -> tuple[float, float]:
    """Mean squared stretch of noise by the averages among these operations, and by the others.

    >>> stretch(tape, (pool,))                                  # 2 by 2 averages
    (0.25, 1.0)

    Args:
        tape: the record.
        trail: linear operations, one after the other.
        profile: mean square of the noise at each entry, up to a factor; broadcast to the shape of what goes in.
    """
    known = [_known(tape, op) for op in trail]
    if trail and trail[0].name == "pad":
        known[0] = _padded(tape, trail[0], profile)
    if None not in known:
        pairs = [(k, is_average(op)) for k, op in zip(known, trail, strict=True) if k is not None]
        return math.prod(k for k, mean in pairs if mean), math.prod(k for k, mean in pairs if not mean)
    shape = tape.nodes[trail[0].inputs[0]].shape
    source, outputs = generator(0, 0), 0
    squares = [0.0] * (len(trail) + 1)
    for _ in range(256):
        noise = torch.randn(shape, generator=source, dtype=tape.x.dtype).to(tape.x.device)
        noise = noise if profile is None else noise * profile.sqrt()
        squares[0] += float(noise.double().square().mean())
        for place, op in enumerate(trail):
            noise = _linear(tape, op, noise)
            squares[place + 1] += float(noise.double().square().mean())
        outputs += noise.numel()
        if outputs >= ENOUGH:
            break
    averages = rest = 1.0
    for op, exact, (before, after) in zip(trail, known, itertools.pairwise(squares), strict=True):
        ratio = exact if exact is not None else after / before if before > 0 else 0.0
        if is_average(op):
            averages *= ratio
        else:
            rest *= ratio
    return averages, rest


def _known(tape: Tape, op: Op) -> float | None:
    """1 for what only moves entries, 1/k for means over all or over windows of k places that tile them; else None."""
    if only_moves(op) and op.meaning.kind not in _MIXES:
        return 1.0
    if not is_average(op):
        return None
    before, after = tape.nodes[op.inputs[0]].shape, tape.nodes[op.outputs[0]].shape
    share = math.prod(after) / math.prod(before)
    if op.name == "mean":
        return share
    given, dims = op.given, int(op.name[-2])
    sides = before[-dims:]
    if op.name.startswith("adaptive"):
        return share if all(side % end == 0 for side, end in zip(sides, after[-dims:], strict=True)) else None

    def sized(value: int | Sequence[int]) -> tuple[int, ...]:
        values = (value,) if isinstance(value, int) else tuple(value)
        return values * (dims // len(values))

    kernel = sized(given["kernel_size"])
    stride = sized(given.get("stride") or kernel)
    divided = given.get("divisor_override") is not None
    plain = not any(sized(given.get("padding", 0))) and not divided
    tiled = stride == kernel and all(side % k == 0 for side, k in zip(sides, kernel, strict=True))
    return share if plain and tiled else None


def _padded(tape: Tape, op: Op, profile: Tensor | None) -> float | None:
    """What padding does, exactly: each entry of its output is one of its input, or the fill."""
    assert op.call is not None
    if op.given.get("value"):
        return None  # a fill is a constant that no stretch describes
    before = torch.ones((), dtype=torch.float64) if profile is None else profile.double()
    before = before.to(tape.x.device).expand(tape.nodes[op.inputs[0]].shape)
    after: Tensor = op.call({op.inputs[0]: before})
    total = float(before.mean())
    return float(after.mean()) / total if total > 0 else None


def averages_among(tape: Tape, ops: tuple[Op, ...]) -> float:
    """The product of the stretches of the averages among operations of any kind, each taken alone."""
    found = 1.0
    for op in ops:
        if is_average(op):
            found *= stretch(tape, (op,))[0]
    return found


def _linear(tape: Tape, op: Op, noise: Tensor) -> Tensor:
    assert op.call is not None
    fixed = affine_of(tape, op)
    if fixed is None:
        result: Tensor = op.call({op.inputs[0]: noise})
        return result
    return noise * fixed.factors(noise)
