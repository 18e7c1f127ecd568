"""What gains mean: the phase of a network, and whether it trains at its depth (Hayou 2.2; Schoenholz 2017).

Pure judgement over numbers: nothing here measures, and every constant of the judgement is below, with its source.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from epoch0.diagnosis.wording import number

Phase = Literal["ordered", "critical", "chaotic", "unknown"]
Outcome = Literal["trains", "vanishing", "exploding", "dead", "collapsed"]

TRAINABLE = 6.0
"""Largest |S| that trains, S the sum of log chi: depth <= 6 correlation lengths, a correlation length being 1/|log
chi|.

Source: Schoenholz, Gilmer, Ganguli, Sohl-Dickstein 2017, "Deep information propagation", figure 5 and section 5."""

HOPELESS = 12.0
"""|S| beyond which no learning rate helps: twice what trains. Between the two, training is slow or stops short.

Measured on the embedded digits (28 ReLU networks of depth 5 to 40, ten epochs of plain SGD at the best of three
rates): accuracy 0.86 or more up to abs(S) = 6.3, except for two deep critical networks for which ten epochs were too
few (0.60 at depth 20, 0.26 at depth 40); 0.2 to 0.75 from 6.6 to 12; at most 0.31 beyond. Adam, which rescales each
gradient, still trains vanishing networks up to about twice that."""

COMFORTABLE = 2.0
"""|S| up to which depth costs nothing worth mentioning: norms change by less than e = 2.7 from one end to the
other."""

COLLAPSED = 1e-3
"""Mean 1 - cosine between two examples below which a layer tells them apart no more.

A critical ReLU network keeps about 44/depth^2 (1 - c ~ 9 pi^2 / 2 l^2, Hayou Proposition 1), so this value is met by
a healthy
one only from depth 200 on, and by an ordered one within a few correlation lengths."""

SATURATED = 0.5
"""Share of saturated values from which a layer is called saturated: most of its units answer to nothing any more."""

NORMAL = 1.96
"""Standard errors to each side of the 95 % interval around the mean log gain, which decides the phase."""


@dataclass(frozen=True)
class PhaseReading:
    """The phase of a network, with the mean gain a layer and its confidence interval.

    Attributes:
        phase: 'ordered' (chi < 1), 'critical' (1 lies inside the interval), 'chaotic' (chi > 1), or 'unknown' when no
            layer
            has a positive gain.
        chi: geometric mean of the layers' gains.
        low: lower end of the 95 % interval of chi.
        high: upper end.
        layers: how many layers went in.
    """

    phase: Phase
    chi: float
    low: float
    high: float
    layers: int

    def __str__(self) -> str:
        if self.phase == "unknown":
            return "unknown: no layer with a nonlinearity has a positive gain"
        return f"{self.phase}: chi = {self.chi:.3g} a layer, 95 % interval {self.low:.3g} to {self.high:.3g}"


def read_phase(gains: Sequence[float], errors: Sequence[float]) -> PhaseReading:
    """The phase from the gains of the layers that have a nonlinearity.

    >>> str(read_phase([0.17, 0.16, 0.18], [0.01, 0.01, 0.01]))                # one number a layer
    'ordered: chi = 0.17 a layer, 95 % interval 0.159 to 0.182'

    The interval is plus and minus 1.96 standard errors of the mean log gain. The spread over the layers holds both
    their differences
    and the noise of measuring them; the interval is never narrower than the noise alone.

    Args:
        gains: chi of each layer; zeros (dead layers) are left out, they are reported on their own.
        errors: standard error of each.

    Source: Hayou et al. 2021, section 2.2 (chi = 1 is the edge of chaos).
    """
    pairs = [(g, e) for g, e in zip(gains, errors, strict=True) if g > 0 and math.isfinite(g)]
    if not pairs:
        return PhaseReading("unknown", math.nan, math.nan, math.nan, 0)
    logs = np.log([g for g, _ in pairs])
    noise = np.array([e / g if math.isfinite(e) else 0.0 for g, e in pairs])
    count = len(pairs)
    mean = float(logs.mean())
    half = NORMAL * float(np.sqrt((noise**2).sum())) / count
    if count > 1:
        spread = float(logs.std(ddof=1)) / math.sqrt(count)
        half = max(half, NORMAL * spread)
    low, high = mean - half, mean + half
    phase: Phase = "critical" if low <= 0 <= high else "ordered" if mean < 0 else "chaotic"
    return PhaseReading(phase, math.exp(mean), math.exp(low), math.exp(high), count)


@dataclass(frozen=True)
class Passage:
    """What the whole depth does to a norm: S = sum of log chi; the norm is multiplied by exp(S/2).

    Attributes:
        log_gain: S, minus infinity if a layer passes nothing on.
        error: standard error of S.
        layers: number of layers that were crossed.
    """

    log_gain: float
    error: float
    layers: int

    @property
    def factor(self) -> float:
        """By what the norm is multiplied."""
        return math.exp(self.log_gain / 2) if self.log_gain < 1400 else math.inf

    @property
    def orders(self) -> float:
        """The same in orders of magnitude, positive for growth."""
        return self.log_gain / 2 / math.log(10)


def read_passage(gains: Sequence[float], errors: Sequence[float]) -> Passage:
    """The product of gains over the depth.

    >>> passage = read_passage([0.5] * 20, [0.0] * 20)
    >>> round(passage.log_gain, 2), round(passage.orders, 2)
    (-13.86, -3.01)
    """
    if any(g <= 0 for g in gains):
        return Passage(-math.inf, 0.0, len(gains))
    total = math.fsum(math.log(g) for g in gains)
    error = math.sqrt(sum((e / g) ** 2 for g, e in zip(gains, errors, strict=True) if math.isfinite(e)))
    return Passage(total, error, len(gains))


@dataclass(frozen=True)
class Verdict:
    """Whether the network is expected to train, and why, in one sentence.

    Attributes:
        outcome: 'trains', 'vanishing', 'exploding', 'dead' or 'collapsed'.
        sentence: the verdict in plain words.
    """

    outcome: Outcome
    sentence: str

    @property
    def trains(self) -> bool:
        """Whether it is expected to train."""
        return self.outcome == "trains"


def read_verdict(
    backward: Passage,
    forward: Passage,
    *,
    dead: Sequence[str] = (),
    overflowing: Sequence[str] = (),
    collapsed: Sequence[str] = (),
) -> Verdict:
    """The verdict over the whole depth.

    >>> verdict = read_verdict(Passage(-36.0, 0.1, 20), Passage(-36.0, 0.1, 20))
    >>> verdict.outcome, verdict.sentence[:51]
    ('vanishing', 'Will not train as it is: gradients vanish, the firs')

    Args:
        backward: over the layers a gradient crosses between the last layer and the first.
        forward: over all layers a signal crosses.
        dead: names of layers whose output is zero for every example.
        overflowing: names of layers whose numbers are not finite.
        collapsed: names of layers that map all examples to nearly the same output.

    Source: Schoenholz et al. 2017 for the criterion |S| <= 6.
    """
    if overflowing:
        return Verdict("exploding", f"Cannot train: numbers overflow from layer {overflowing[0]} on.")
    if dead:
        return Verdict("dead", f"Cannot train: nothing passes through {_layers(dead)}.")
    if backward.log_gain == -math.inf or forward.log_gain == -math.inf:
        return Verdict("dead", "Cannot train: some layer passes nothing on, so every gradient before it is zero.")
    worst = max(backward, forward, key=lambda passage: abs(passage.log_gain))
    if abs(backward.log_gain) > TRAINABLE:
        size, less = abs(backward.orders), backward.log_gain < 0
        return Verdict(
            "vanishing" if less else "exploding",
            f"{_bad(backward)} as it is: gradients {'vanish' if less else 'explode'}, the first layer receives one "
            f"{size:.1f} orders of magnitude {'smaller' if less else 'larger'} than the last.",
        )
    if abs(forward.log_gain) > TRAINABLE:
        size, less = abs(forward.orders), forward.log_gain < 0
        return Verdict(
            "vanishing" if less else "exploding",
            f"{_bad(forward)} as it is: signals {'vanish' if less else 'explode'}, differences between inputs come out "
            f"{size:.1f} orders of magnitude {'smaller' if less else 'larger'}.",
        )
    if collapsed:
        return Verdict(
            "collapsed",
            f"Will hardly train: from {collapsed[0]} on all examples are mapped to nearly the same output.",
        )
    layers = f"{worst.layers} layer{'s' if worst.layers != 1 else ''}"
    if abs(worst.log_gain) <= COMFORTABLE:
        return Verdict(
            "trains",
            f"Expected to train: over {layers} gradients change by a factor of {number(backward.factor, 2)} and "
            f"signals by {number(forward.factor, 2)}.",
        )
    which = "gradients" if worst is backward else "signals"
    way = "shrink" if worst.log_gain < 0 else "grow"
    return Verdict(
        "trains",
        f"Expected to train, with little depth to spare: over {layers} {which} {way} by a factor of "
        f"{math.exp(abs(worst.log_gain) / 2):.2g}; {math.exp(TRAINABLE / 2):.0f} is the limit.",
    )


def _bad(passage: Passage) -> str:
    return "Will not train" if abs(passage.log_gain) > HOPELESS else "Hard to train"


def _layers(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"layer {shown}" if len(names) == 1 else f"layers {shown}"


def read_status(gain: float, error: float, depth: int) -> str:
    """What a layer of this gain would do if all of the depth had it, in the words of :func:`epoch0.gain`.

    >>> read_status(1.01, 0.001, 10), read_status(0.5, 0.01, 10), read_status(1.1, 0.2, 10)
    ('keeps', 'shrinks', 'unclear')
    """
    if not math.isfinite(gain):
        return "overflows"
    if gain <= 0:
        return "dead"
    room, log, noise = 2 * math.log(2) / depth, math.log(gain), 2 * error / gain
    if abs(log) < room:
        return "keeps" if abs(log) + noise < 2 * room else "unclear"
    return "unclear" if abs(log) < noise else "grows" if log > 0 else "shrinks"
