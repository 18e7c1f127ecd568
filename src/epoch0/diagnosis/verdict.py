"""From what was measured to a verdict for each optimizer: whether it trains, how sure that is, and why (THEORY 0).

The chance of training is logistic in a few numbers of the first step, and of the trial where there was one; the
weights are fitted by ``benchmarks/bench_verdict.py --fit`` and stand in ``fitted.json``.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from epoch0.diagnosis.faults import FoundFaults
from epoch0.diagnosis.faults.evidence import rate_of
from epoch0.diagnosis.step import LADDER, USUAL, Optimizer, StepEffect
from epoch0.diagnosis.trial import LENGTHS, RATES, Run, TrialResult
from epoch0.diagnosis.wording import number
from epoch0.results import first_names

Phase = Literal["ordered", "critical", "chaotic", "unknown"]
Evidence = Literal["step 0", "trial"]

FITTED: dict[str, dict[str, dict[str, float]]] = json.loads(Path(__file__).with_name("fitted.json").read_text())

COLLAPSED = 1e-3
"""Mean 1 - cosine between two examples below which they count as collapsed.

A critical ReLU network keeps about 44/depth^2 (1 - c ~ 9 pi^2 / 2 l^2, Hayou Proposition 1), so this value is met by
a healthy one only from depth 200 on, and by an ordered one within a few correlation lengths."""

SLOWLY = 0.62
"""Share of pairs that a trial orders right from which a network that fails learns too slowly (docs/checkup)."""

SATURATED = 0.5
"""Share of saturated values from which a layer is called saturated: most of its units answer to nothing any more."""

CRAWL = 3.5  # of a step that takes less than 10^-3.5 of the loss away, 300 with momentum 0.9 do not suffice
SURE, LIKELY = 0.98, 0.75  # probability of one whose trial has decided; at most, if held-out examples tell nothing
STEADY = 0.03  # so much less may the loss fall at a smaller rate of SGD, as the largest is near where it diverges
LEARNS, UNDECIDED = 0.95, 0.4  # share of sound programs that learned: whose outputs came to know the targets, others

CRITICAL = 0.005  # a gain so near to 1 is 1.00
NORMAL = 1.96  # standard errors to each side of the 95 % interval around the mean log gain, which decides the phase

NAMES: dict[str, str] = {"adam": "Adam", "sgd": "SGD with momentum", "yours": "your optimizer"}


class PhaseEstimate(NamedTuple):
    """The phase of a network, with the mean gain a layer and its confidence interval."""

    #: 'ordered' (chi < 1), 'chaotic' (chi > 1), 'critical' (the interval holds 1, not 1/2 and not 2) or 'unknown'
    phase: Phase = "unknown"
    chi: float = math.nan  #: geometric mean of the layers' gains
    chi_interval: tuple[float, float] = (math.nan, math.nan)  #: 95 %


def estimate_phase(gains: Sequence[float], errors: Sequence[float]) -> PhaseEstimate:
    """The phase from the local gains of the layers that have a nonlinearity. The interval is plus and minus 1.96
    standard errors of the mean log gain. The spread over the layers holds both their differences and the noise of
    measuring them; the interval is never narrower than the noise alone. Within half a percent of 1 all are critical.
    """
    if not (pairs := [(g, e) for g, e in zip(gains, errors, strict=True) if g > 0 and math.isfinite(g)]):
        return PhaseEstimate()
    logs, count = np.log([g for g, _ in pairs]), len(pairs)
    noise = math.hypot(*(e / g for g, e in pairs if math.isfinite(e))) / count
    spread = float(logs.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    mean, half = float(logs.mean()), NORMAL * max(noise, spread)
    low, high = mean - half, mean + half
    near: Phase = "critical" if max(-low, high) < math.log(2) else "unknown"  # which holds halving and doubling, too
    phase: Phase = near if low <= 0 <= high or max(-low, high) < CRITICAL else "ordered" if mean < 0 else "chaotic"
    return PhaseEstimate(phase, math.exp(mean), (math.exp(low), math.exp(high)))


@dataclass(frozen=True)
class CumulativeGain:
    """The cumulative gain of a norm over the depth."""

    log_gain: float = math.nan  #: S, twice the natural log of the change of the norm; NaN with nothing to compare
    layers: int = 0  #: number of layers that were crossed

    @property
    def factor(self) -> float:
        """The factor by which the norm changes."""
        return math.exp(self.log_gain / 2) if self.log_gain < 1400 else math.inf

    @property
    def orders(self) -> float:
        """The factor in orders of magnitude, positive for growth."""
        return self.log_gain / 2 / math.log(10)


def cumulative_gain(norms: Sequence[float]) -> CumulativeGain:
    """The gain of a norm between the first and the last of these places."""
    if len(norms) < 2 or not norms[0] > 0 or math.isinf(norms[0]):
        return CumulativeGain(math.nan if norms and not math.isfinite(norms[0]) else 0.0, max(len(norms) - 1, 0))
    if norms[-1] <= 0:
        return CumulativeGain(-math.inf, len(norms) - 1)
    return CumulativeGain(2 * math.log(norms[-1] / norms[0]), len(norms) - 1)


@dataclass(frozen=True)
class Signs:
    """Summary numbers of all layers, from which the verdict is made."""

    #: what carried tangents do between the first layer's output and the last one's input
    forward: CumulativeGain = CumulativeGain(0.0)
    backward: CumulativeGain = CumulativeGain(0.0)  #: what carried gradients do on the way back, between the same two
    input_size: float = 1.0  #: root mean square of the input
    output_size: float = 1.0  #: root mean square of the output
    target_size: float = 0.0  #: root mean square of targets that are values
    #: mean 1 - cosine between two examples before the readout; NaN where it has no meaning
    dissimilarity: float = math.nan
    dead: tuple[str, ...] = ()  #: layers whose output is zero for every example
    overflowing: tuple[str, ...] = ()  #: layers whose numbers are not finite
    collapsed: tuple[str, ...] = ()  #: layers after which all examples point the same way
    saturated: tuple[str, ...] = ()  #: layers most of whose values are saturated
    constant_loss: float | None = None  #: of the best answer that is the same for all; None where it is not known
    same: str = ""  #: why the examples of the batch cannot be distinguished, in a clause; empty where they can


@dataclass(frozen=True)
class Recipe:
    """Whether a network trains with one optimizer."""

    #: ``"adam"`` or ``"sgd"`` (with momentum 0.9), without schedule or clipping; ``"yours"``, the one that was given
    optimizer: str
    trains: bool  #: whether it is expected to
    probability: float  #: that it does, calibrated on networks whose outcome is known
    learning_rate: float  #: the rate to begin with
    #: the largest rate up to 0.1 (10 for SGD) at which the first step does not raise the loss, 0 if none was found
    largest_learning_rate: float
    reason: str  #: why, in a clause
    evidence: Evidence  #: ``"step 0"`` or ``"trial"``
    #: the reason in a word: 'learns', 'overflow', 'no gradient', 'size', 'collapsed', 'vanishing', 'exploding',
    #: 'rough', 'saturated', 'blind', 'slow' or 'fault'
    cause: str
    numbers: Mapping[str, float] = field(repr=False, default_factory=dict)  #: what the probability was computed from


def _clipped(value: float, low: float, high: float) -> float:
    return low if math.isnan(value) else min(max(value, low), high)


def _log(value: float, low: float, high: float) -> float:
    return _clipped(math.log10(value), low, high) if value > 0 else low


def _angle(cosine: float | None, classes: float = 1.0) -> float:
    """Fisher's transform of a cosine, normalized for the number of classes. The best step along such a movement takes
    cosine^2 (C - 1) / (2 log C) of the first cross-entropy of C equal classes away: .02 of 50,000 is as .7 of ten.
    """
    worth = math.sqrt((classes - 1) / math.log(classes) / (9 / math.log(10))) if classes > 10 else 1.0
    return math.atanh(_clipped(0.0 if cosine is None else worth * cosine, -0.999, 0.999))


def _odds(share: float | None) -> float:
    value = 0.5 if share is None else share
    return math.log((value + 0.02) / (1.02 - value))


def step_numbers(step: StepEffect, signs: Signs, adam: StepEffect) -> dict[str, float]:
    """Features of the first step of an optimizer, and of Adam's: a few numbers without units."""
    pace = _log(step.second_pace * min(step.largest, RATES[step.optimizer][-1]), -6, 0)
    return {
        "alignment": _angle(step.alignment, step.classes),
        "adam alignment": _angle(adam.alignment, adam.classes),
        "held": _angle(step.held, step.classes),
        "second": _angle(step.second, step.classes),
        "second held": _angle(step.second_held, step.classes),
        "change": _clipped(step.change, -1, 1),
        "reached": _clipped(step.reached, 0, 1),
        "second pace": pace,
        "crawl": min(pace + CRAWL, 0.0),
        "growth": _clipped(signs.forward.orders, 0, 10),
        "gradient growth": _clipped(signs.backward.orders, 0, 10),
        "small input": _log(signs.input_size, -3, 0),
        "dissimilarity": 0.0 if math.isnan(signs.dissimilarity) else _log(signs.dissimilarity, -7, 0),
    }


def trial_numbers(trained: Sequence[Run], optimizer: Optimizer) -> dict[str, float]:
    """Features of the trainings with one optimizer: the best of its rates in each respect. For SGD they include whether
    Adam learned to distinguish the examples, as SGD is slower at it.
    """
    runs, adam = ([run for run in trained if run.optimizer == kind] for kind in (optimizer, "adam"))

    def learned(runs: Sequence[Run]) -> float:
        return max((min(_odds(run.known), _odds(run.known_seen) - 1) for run in runs), default=-1.0)

    return {
        "known": _odds(max((run.known for run in runs if run.known is not None), default=None)),
        "known seen": _odds(max((run.known_seen for run in runs if run.known_seen is not None), default=None)),
        "fell": _odds(_clipped(max((run.drop for run in runs), default=0.0), 0, 1)),
        "learned": learned(runs),
        "learned by adam": learned(adam),
    }


def probability(optimizer: Optimizer, numbers: Mapping[str, float], level: str) -> float:
    """The chance that a network trains, from :func:`step_numbers` and :func:`trial_numbers`. The level says which
    weights to use: ``"step 0"``, ``"step 0 quick"`` (as of large models), ``"trial 60"``, each also with ``" alone"``
    (nothing held out).
    """
    weights = FITTED[optimizer][level]
    score = weights["intercept"] + sum(w * numbers[name] for name, w in weights.items() if name != "intercept")
    return 1 / (1 + math.exp(-_clipped(score, -40, 40)))


def level(step: StepEffect, runs: Sequence[Run], steps: int | None) -> str:
    """The name of the fitted weights that apply to what was measured."""
    if steps is None:
        return f"step 0{' quick' if step.quick else ''}{'' if step.held is not None else ' alone'}"
    nearest = min(LENGTHS, key=lambda length: abs(length - steps))
    return f"trial {nearest}" if any(run.known is not None for run in runs) else f"trial {nearest} alone"


def assess(step: StepEffect, signs: Signs, trial: TrialResult | None, adam: StepEffect | None = None) -> Recipe:
    """The verdict for one optimizer: from its first step and Adam's, the layers, and the trial where there was one."""
    optimizer = step.optimizer
    runs, constant, numbers = list[Run](), None, step_numbers(step, signs, adam or step)
    if trial is not None:
        runs, constant = trial.of(optimizer), trial.constant
        numbers |= trial_numbers(trial.runs, optimizer)
    weights = level(step, runs, None if trial is None else trial.steps)
    chance = probability(optimizer, numbers, weights)
    numbers = {name: value for name, value in numbers.items() if name != "known" or not weights.endswith(" alone")}
    if (step.reached == 0 and step.second == 0) or (signs.overflowing and not step.finite):
        chance = min(chance, 0.01)
    if any(run.settles(constant) for run in runs):
        chance = max(chance, SURE)
    if trial is not None and trial.untold is not None:
        chance = min(chance, LIKELY)
    idle = trial is not None and trial.steps >= LENGTHS[1] and constant is not None and max(r.drop for r in runs) <= 0
    if idle or (runs and all(run.diverged for run in runs)):
        chance = min(chance, UNDECIDED)  # no better than one answer for all: of 166 such networks 3 train; of 40, none
    trains, rate = chance >= 0.5, suggested_rate(step, runs)
    if not trains:
        cause, reason = _failure(step, signs, runs, constant)
    elif runs:
        best, cause = best_run(runs), "learns"
        reason = f"in {len(best.losses)} steps at {best.rate:g} the loss {_loss_course(best, constant)}"
    else:
        cause, held = "learns", [value for value in (step.held, step.second_held) if value is not None]
        reason = f"one step moves the outputs as the loss wants (cosine {max(step.alignment, step.second):z.2f}"
        reason += f", {max(held):z.2f} on examples it has not seen)" if held else ")"
    evidence: Evidence = "step 0" if trial is None else "trial"
    return Recipe(optimizer, trains, chance, rate, step.largest, reason, evidence, cause, numbers)


def assess_program(found: FoundFaults, optimizers: Sequence[Any]) -> dict[str, Recipe]:
    """The verdict for ``"yours"``, the optimizer given; nothing where it was neither tried nor found at fault."""
    done = found.mending
    if len(optimizers) != 1 or (done is None and not found.faults):
        return {}
    sound = done is not None and done.sound and not done.own.by_heart
    text = "" if done is None else f"in {done.own.steps} steps of its own {done.own.summary()}"
    if found.faults:
        first = found.faults[0]
        chance, cause = min(1 - first.certainty, 1.0 if sound or done is None else UNDECIDED), "fault"
        less = chance >= 0.5 if sound else done is not None and done.own.learns
        words = "does not learn as it should" if sound else "does not learn as it is"
        words = "learns by heart" if done and done.own.by_heart else "learns less than it could" if less else words
        reason = f"{words} ({first.kind}): {first.message} {first.fix}".rstrip(".")
    elif done is not None and sound:
        chance, cause, reason = LEARNS, "learns", f"learns{' slowly' * done.own.slowly} as it is: {text}"
        if done.own.slowly and (best := done.best) is not None and best.trained.shared > done.own.shared:
            reason += f". {best.fixes[0]} On a copy that gave {best.trained.shared:.0%} in {best.trained.steps} steps"
    else:
        assert done is not None  # else there are faults
        tried, chance, cause = f"none of {len(done.tried)} changes mends it", UNDECIDED, "slow"
        reason = f"does not learn in time: {text}, and {tried}; it may need many more steps, or other data"
    kind: Evidence = "step 0" if done is None else "trial"
    return {"yours": Recipe("yours", chance >= 0.5, chance, rate_of(optimizers[0]), math.nan, reason, kind, cause)}


def fooled(recipe: Recipe) -> Recipe:
    """The recipe of a loss that is no measure, as it has no floor."""
    reason = "the loss falls without bound, so that it falls says nothing"
    return replace(recipe, trains=False, probability=min(recipe.probability, 0.05), reason=reason, cause="fault")


def suggested_rate(step: StepEffect, runs: Sequence[Run]) -> float:
    """The rate to begin with: the best of the trial, or the usual one less what the first step does not stand. Not
    below the least that is usual: the seven networks of the fit that train though their first step stands less train
    there. Large models get no more than the usual rate: at three times that a stock ViT-B/16 and a small GPT-2, whose
    first step stands it, lag far behind.
    """
    if runs:
        return best_run(runs).rate
    least, most = RATES[step.optimizer][0], RATES[step.optimizer][-1 if step.optimizer == "adam" else 0]
    most = min(most, USUAL[step.optimizer]) if step.quick else most
    return _round(least / 100) if step.largest <= 0 else min(most, max(least, _round(step.largest / 3)))


def _round(rate: float) -> float:
    """A rate as people write it: 1 or 3 times a power of ten, not above."""
    power = 10.0 ** math.floor(math.log10(rate) + 1e-9)
    return float(f"{(3 if rate >= 2.999 * power else 1) * power:.0e}")


def best_run(runs: Sequence[Run]) -> Run:
    """The training whose loss fell furthest: the rate that is best after many more steps, too; of SGD the steadiest."""
    best = max(runs, key=lambda run: -math.inf if run.diverged else run.drop)
    margin = STEADY if best.optimizer == "sgd" else 0.0
    return next((run for run in runs if not run.diverged and run.drop >= best.drop - margin), best)


def _loss_course(run: Run, constant: float | None) -> str:
    """The course of the loss in words, beside that of the best constant answer, and of held-out examples."""
    if run.diverged:
        return "left the range of floats"
    first, last = run.losses[0], sum(run.losses[-10:]) / len(run.losses[-10:])
    fell = f"{'fell' if last < first else 'did not fall,'} from {number(first)} to {number(last)}"
    fell += "" if constant is None else f" (one answer for all: {number(run.constant or constant)})"
    known = "" if run.known is None else f", and of held-out examples {run.known:.0%} of the pairs are ordered right"
    return f"{fell}{known} (chance: 50%)" if known else fell


def _failure(step: StepEffect, signs: Signs, runs: Sequence[Run], constant: float | None) -> tuple[str, str]:
    """The most likely cause in a word and in a clause; the first that applies."""
    seen = ""
    if runs:
        steps, text = max(len(run.losses) for run in runs), _loss_course(best_run(runs), constant)
        seen = f" (in {steps} steps at the best of {len(runs)} rates the loss {text})"
    if signs.overflowing or not step.finite:
        where = f" in {signs.overflowing[0]}" if signs.overflowing else " after the first step"
        return "overflow", f"numbers leave the range of floats{where}{seen}"
    if step.reached == 0 and step.second == 0:
        where = f": nothing passes through {signs.dead[0]}" if signs.dead else ""
        return "no gradient", f"no weight gets a gradient{where}"
    if signs.same:
        return "blind", f"{signs.same}{seen}"
    if signs.dead:
        return "no gradient", f"nothing passes through {first_names(signs.dead, 1)}{seen}"
    if signs.target_size > 30 * max(signs.output_size, 1.0):
        sizes = f"the targets are of size {number(signs.target_size)}, the outputs of {number(signs.output_size)}"
        return "size", f"{sizes}: standardize the targets{seen}"
    constant, large = signs.constant_loss, signs.output_size > (signs.target_size or 2.0)  # else dropout makes it
    if large and constant and 0 < 20 * constant < step.loss:
        text = f"the first loss is {number(step.loss)}, {number(step.loss / constant)} times that of a constant answer"
        return "size", f"{text}: the outputs, of size {number(signs.output_size)}, are too large{seen}"
    if signs.input_size < 0.05 or signs.input_size > 30:
        return "size", f"the inputs are of size {number(signs.input_size)}; scale them to about 1{seen}"
    small = step.optimizer == "adam" and step.reached < 0.5 and (signs.backward.orders < -0.5 or step.second < 0.3)
    if small or signs.backward.orders < -2.6:
        much = f", and {1 - step.reached:.0%} of them are below Adam's eps" if small else ""
        way = f"by {-signs.backward.orders:.1f} orders of magnitude " if signs.backward.orders < -0.5 else ""
        return "vanishing", f"gradients shrink {way}on the way to the first layer{much}{seen}"
    if signs.collapsed:
        return "collapsed", f"from {signs.collapsed[0]} on all examples look alike{seen}"
    if signs.forward.orders > 1.3 or signs.backward.orders > 1.3:
        orders = max(signs.forward.orders, signs.backward.orders)
        quantity = "differences between inputs" if signs.forward.orders == orders else "gradients"
        return "exploding", f"{quantity} grow by {orders:.1f} orders of magnitude over the depth{seen}"
    if step.largest < RATES[step.optimizer][0]:
        rate = step.largest * (30 if step.quick else 3) or LADDER[step.optimizer][0]  # the next that was looked at
        return "rough", f"already a rate of {number(rate, 1)} makes the first step raise the loss{seen}"
    if signs.saturated:
        return "saturated", f"most values are saturated after {first_names(signs.saturated, 1)}{seen}"
    if (cosine := max(step.alignment, step.second)) < 0.3:
        text = f"a step moves the outputs of all examples alike (cosine {cosine:z.2f} with what the loss wants)"
        return "blind", f"{text}{seen}"
    if (most := max((run.drop for run in runs), default=0.5)) <= 0:
        return "slow", f"at no rate tried its loss falls{' below that of one answer for all' * bool(constant)}{seen}"
    if runs and all(run.known is None for run in runs):
        return "slow", f"it learns {'these examples, in a way that seldom lasts' if most > 0.9 else 'too slowly'}{seen}"
    words = "these examples, and little that" if most > 0.9 else "too slowly or not what"
    return "slow", f"it learns {words} holds for other examples{seen}"


def sentence(recipes: Mapping[str, Recipe]) -> str:
    """The verdict over all recipes in a sentence that says what to do; over the user's program, where it is known."""
    if "yours" in recipes:
        text = recipes["yours"].reason
        return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
    if not recipes:
        return "Not judged: of a network that is streamed the layers are measured, no step."
    adam, sgd = recipes["adam"], recipes["sgd"]
    sure = "" if all(abs(r.probability - 0.5) > 0.25 for r in (adam, sgd)) else "Probably: "
    if adam.trains and sgd.trains:
        text = f"trains with either, Adam at a rate of about {adam.learning_rate:g} or SGD at {sgd.learning_rate:g}."
    elif adam.trains or sgd.trains:
        word, one, other = ("Adam", adam, sgd) if adam.trains else ("SGD", sgd, adam)
        text = f"needs {word}, at a rate of about {one.learning_rate:g}"
        text += f"; with {NAMES[other.optimizer]} {_short(other.reason)}."
    elif adam.cause == sgd.cause == "no gradient" and adam.probability <= 0.01:
        return f"Cannot train: {_short(adam.reason)}."
    else:
        best = max((adam, sgd), key=lambda r: r.probability)
        seen = max(min(r.numbers.get("known", math.inf), r.numbers.get("known seen", 0)) for r in (adam, sgd))
        text = f"{'learns too slowly' if seen >= _odds(SLOWLY) else 'will not train'}: {_short(best.reason)}"
    return (sure + text if sure else text[0].upper() + text[1:]).rstrip(".") + "."


def _short(reason: str) -> str:
    """A reason without what the trial saw."""
    return reason.split(" (in ")[0]


def outcome(recipes: Mapping[str, Recipe]) -> str:
    """The verdict in a word: 'trains', 'needs adam', 'needs sgd', or the cause why it does not."""
    if "yours" in recipes:
        return "trains" if recipes["yours"].trains else recipes["yours"].cause
    if not recipes:
        return "not judged"
    if len(trains := [name for name, recipe in recipes.items() if recipe.trains]) == len(recipes):
        return "trains"
    return f"needs {trains[0]}" if trains else max(recipes.values(), key=lambda recipe: recipe.probability).cause
