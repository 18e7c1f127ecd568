"""What to change, in sentences: the factors where there are any, and what works instead where there are none."""

import math
from collections.abc import Iterator, Sequence

from epoch0.diagnosis.remedy import Branches, Remedy
from epoch0.diagnosis.verdict import COMFORTABLE, TRAINABLE, Passage, PhaseReading, Verdict
from epoch0.diagnosis.wording import number
from epoch0.tracing.layers import Layer

ALIKE = 1.1
"""Factors whose largest is at most this many times the smallest are given as one number."""

NAMED = 3
"""How many layers a sentence names before it only counts the rest."""


def advice(
    verdict: Verdict,
    phase: PhaseReading,
    worst: Passage,
    names: Sequence[str],
    layers: Sequence[Layer],
    remedy: Remedy,
) -> Iterator[str]:
    """One sentence for each thing to do, the most effective first.

    Args:
        verdict: the judgement.
        phase: the phase.
        worst: what the depth does to gradients or to signals, whichever it changes more.
        names: name of each layer.
        layers: the layers.
        remedy: factors and what was measured with them.
    """
    if verdict.outcome == "dead":
        yield (
            "Find out why the layers marked dead pass nothing on: biases far below zero, weights of zero, or inputs of "
            "zero."
        )
        return
    if verdict.trains and abs(worst.log_gain) <= COMFORTABLE:
        yield "Nothing has to change. A factor in the table is what would bring the gain of its layer to 1."
        return
    if verdict.trains:
        yield "It should train as it is; what follows would give it depth to spare."
    if any(factor is not None for factor in remedy.factors) and abs(_depth_after(remedy)) < abs(worst.log_gain):
        yield from _factors(names, layers, remedy)
    if remedy.branches is not None:
        yield _branches(remedy.branches)
    for reason in dict.fromkeys(r for r in remedy.reasons if r and not r.startswith(("residual block", "no weights"))):
        which = [name for name, r in zip(names, remedy.reasons, strict=True) if r == reason]
        yield f"No factor works for {_list(which)}: {reason}."
    normed = sum(reason.startswith("the norm") for reason in remedy.reasons)
    if normed > 1 and worst.log_gain > COMFORTABLE:
        yield (
            "A norm after the weights fixes the gain, and batch norm before a ReLU stretches gradients by about "
            "pi/(pi - 1) = 1.467 a layer going back: use fewer layers, residual connections, or norms in fewer places."
        )
    if verdict.outcome in ("vanishing", "exploding") and 0 < abs(worst.log_gain) < math.inf:
        most = math.floor(TRAINABLE * worst.layers / abs(worst.log_gain))
        if 0 < most < len(layers):
            yield f"Or keep the layers as they are and use at most {most} of them instead of {len(layers)}."
    bounded = any(layer.activation is not None and not layer.activation.homogeneous for layer in layers)
    if bounded and (verdict.outcome == "collapsed" or phase.phase == "ordered"):
        yield "Smaller biases keep examples apart for longer, beside larger weights."


def _depth_after(remedy: Remedy) -> float:
    """Sum of the log gains with the factors in place."""
    return sum(math.log(gain) for gain in remedy.gains if gain > 0)


def _factors(names: Sequence[str], layers: Sequence[Layer], remedy: Remedy) -> Iterator[str]:
    values = {i: factor for i, factor in enumerate(remedy.factors) if factor is not None}
    low, high = min(values.values()), max(values.values())
    mean = math.exp(sum(math.log(v) for v in values.values()) / len(values))
    where = "every layer" if len(values) == len(layers) else _list([names[i] for i in values])
    by = f"{mean:.3g}" if high / low <= ALIKE else f"the factor in the table ({low:.3g} to {high:.3g})"
    reached = [i for i in values if remedy.reached[i]]
    if len(reached) == len(values):
        shown = f"the forward gain {'of each ' if len(values) > 1 else ''}is then 1 within its error"
    elif reached:
        shown = f"the forward gain is then 1 within its error in {len(reached)} of them"
    else:
        shown = "the forward gain is then nearer to 1"
    yield (
        f"Multiply the weights of {where} by {by}. Measured again with the factors in place: {shown}, and over the "
        f"whole depth norms change by a factor of {number(math.exp(_depth_after(remedy) / 2), 2)}."
    )
    shared = _sharing(list(values), layers)
    if shared:
        several = _list([names[i] for i in shared]).capitalize()
        yield f"{several} use the same weights, so one factor brings their mean gain to 1, not each."


def _sharing(moved: Sequence[int], layers: Sequence[Layer]) -> list[int]:
    """Layers whose weights are used by another layer too."""
    uses: dict[str, list[int]] = {}
    for i in moved:
        for weight in layers[i].weights:
            uses.setdefault(weight, []).append(i)
    return sorted({i for several in uses.values() if len(several) > 1 for i in several})


def _branches(found: Branches) -> str:
    if found.blocks == 1:
        return "No scale brings a residual block's gain to 1 (shortcut plus branch); a single block does no harm."
    return (
        f"No scale brings a residual block's gain to 1 (shortcut plus branch). Multiply each of the {found.blocks} "
        f"residual branches by 1/sqrt({found.blocks}) = {found.factor:.3g}: measured with that, tangents change by a "
        f"factor of {math.exp(found.after / 2):.2g} over the blocks instead of {math.exp(found.before / 2):.2g}."
    )


def _list(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"layer {names[0]}"
    if len(names) <= NAMED:
        return f"layers {', '.join(names[:-1])} and {names[-1]}"
    return f"layers {', '.join(names[:NAMED])} and {len(names) - NAMED} more"
