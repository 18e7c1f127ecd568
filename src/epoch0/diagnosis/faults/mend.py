"""Which change repairs a program: copies are changed, trained as the program is, and compared with it."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from epoch0.diagnosis.faults.changes import CHANGES, USUAL_LOOP, Change
from epoch0.diagnosis.faults.evidence import SAMPLED, Evidence, Fault, raised
from epoch0.diagnosis.faults.gradients import CUT
from epoch0.diagnosis.faults.program import CLEARLY, ENOUGH, FEW, KNOWS, Trained, UserProgram
from epoch0.tracing.call import parts

LONG = 20_000  # steps for a program of few examples, whose steps are short
STEPS, FEWEST = 200, 40  # steps of a trial, and the fewest that are worth making
EPOCHS, MOST = 50, 2000  # epochs, and steps at most, to learn the targets for a program without suspected faults
BETTER = 0.05  # how much more of the targets a changed copy must know than the program as it is
RISING, SLOW = 0.05, 0.45  # what a slow program knows after many epochs, and gains in their second half; less is little
TRIES = 12  # changes for which the seconds should suffice
SURE = 0.85  # once a fault seen before training with this certainty is repaired, few other changes are tried
ALSO = ("input scale", "target scale", "loss")  # which they are: a rate may be too high for the scale of the data
UNSTEADY, FALLEN = 1.5, 0.6  # times the first loss: one as large on its way may rise again; as the first, once fallen
COLLAPSED = 0.1  # share of the outputs' differences that training may leave, where nobody says what is right
SCHEDULED = 0.01  # a schedule that leaves less of the rate than this within the steps of a trial is too fast

# An activation or a scale suspected with this certainty stands against a program that learns, if its copy without it
# knows as much in half the steps, and so much more than the program then.
SOONER = (0.75, 0.2)
UNREFUTED = ("labels", "loss", "data", "output activation")  # by a loss that falls where it reads no targets
SLOWING = ("output activation", "hidden activation", "data", "input scale", "initialization", "optimizer")
SLOWED = ("rate*10", "thawed", "rate/10", "turned")  # tried of what learns slowly; two are faults where they help much
AS_SAID = ("learning rate", "initialization", "input scale", "target scale")  # the change tried is the advice itself
KEPT = ("update", "loss", "optimizer")  # kinds whose fix says more than what was tried
INSIDE = ("outputs", "targets", "loss")  # what cannot be changed where the model computes its own loss

# Certainty of a change that repairs a program without suspected faults, by its kind; others .25.
ALONE = {
    "shapes": 0.6, "update": 0.6, "gradient flow": 0.6, "hidden activation": 0.5, "learning rate": 0.45,
    "output activation": 0.4, "loss": 0.35, "input scale": 0.35, "target scale": 0.35, "initialization": 0.3,
}  # fmt: skip

# Learned by heart: what the outputs know of the training examples, at least, of held-out ones, at most, and how many
# these are, at least (none of 524 mended programs); an eighth of what is known is little, too, of MANY a half.
BY_HEART, MANY = (0.15, 0.06, 60), 200
REACHES_OUTPUTS = "See that everything the targets depend on reaches the outputs: positions, order, the last state."
HEART = (
    Fault("labels", "targets", "", "See that inputs and targets belong together, row by row.", "trial", 0.45),
    Fault("data", "inputs", "", "See that all examples are made in the same way, and are enough.", "trial", 0.4),
    Fault("architecture", "model", "", REACHES_OUTPUTS, "trial", 0.35),
)
HARDLY = 0.1  # certainty of a change that helps a little, beside faults that were seen
SCHEDULE = "Call scheduler.step() once an epoch if it is made for epochs; see that a warm-up does not stay at 0, "
SCHEDULE += "which way the metric of a plateau goes, and how high a cycle does."
PAIRED = "See that the loop body takes inputs and targets of one batch, the one that it is given."
TERMS = "Look at the terms of the loss, one against the other, and at what it is an average of."
LARGE_ENOUGH = "See that the targets can be predicted from the inputs, and that the network is large enough."
UNEXPLAINED = (
    Fault("loss", "loss", "", TERMS, "trial", 0.15),
    Fault("architecture", "model", "", LARGE_ENOUGH, "trial", 0.15),
    Fault("labels", "targets", "", "See that inputs and targets belong together, row by row.", "trial", 0.14),
)

# Logistic weights of a check's certainty, of a cure that was tried and mends, and of one that was not suspected, and
# the intercept; fitted by benchmarks/bench_faults.py.
CERTAINTY = (0.54, 1.78, -0.76, -1.05)


@dataclass(frozen=True)
class Tried:
    """Changes that were made together on a copy, and the training of that copy."""

    changes: tuple[Change, ...]
    fixes: tuple[str, ...]  # what the user would write for each
    trained: Trained  # the training of the changed copy
    mends: bool  # whether its outputs come to know the targets, and better than those of the program as it is

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of faults that the changes would repair."""
        return tuple(change.kind for change in self.changes)


@dataclass(frozen=True)
class Mending:
    """The training of the program as it is, the changes that were tried, and why not more."""

    own: Trained
    tried: tuple[Tried, ...] = ()
    stopped: str = ""

    @property
    def sound(self) -> bool:
        """Whether the program as it is learns, be it slowly: in many epochs it then still gains in the second half."""
        own = self.own
        half = next(known for step, known in own.curve if 2 * step >= own.steps)
        slow = own.steps > STEPS and own.known > RISING and own.known > 1.3 * half
        heard = own.held is None or own.others < BY_HEART[2] or own.held > own.known / 2  # not only by heart
        sooner = _slow(own) and any(item.mends and _sooner(own, item.trained) for item in self.tried)
        sooner |= own.by_heart and any(item.mends for item in self.tried)  # what holds for others could be learned
        smaller = max((i.trained.shared for i in self.tried if i.changes[0].name in SLOWED[2:]), default=0.0)
        little = own.above and own.known < CLEARLY
        sooner |= little and any(i.mends and i.trained.shared >= own.shared + CLEARLY for i in self.tried)
        sooner |= own.slowly and smaller >= own.shared + CLEARLY
        return own.right >= ENOUGH or ((own.learns or (slow and heard)) and not sooner)

    @property
    def mended(self) -> list[Tried]:
        """What mends it, the simplest and best first."""
        return sorted((one for one in self.tried if one.mends), key=lambda item: (len(item.fixes), -item.trained.known))

    @property
    def best(self) -> Tried | None:
        """The best change that repairs the program, if any does."""
        return next(iter(self.mended), None)

    def to_dict(self, kind: str = "") -> dict[str, Any]:
        """Plain data; ``best`` is the change for that kind of fault, if one mends it."""
        one = next((one for one in self.mended if kind in one.kinds), self.best)
        best = None if one is None else self.tried.index(one)
        tried = [{"kinds": t.kinds, "fixes": t.fixes, "mends": t.mends, "curve": t.trained.curve} for t in self.tried]
        own = {"steps": self.own.steps, "curve": self.own.curve, "untold": self.own.untold}
        return {**own, "best": best, "tried": tried}


Tell = Callable[[str, float], None]
"""A callback for progress: the part that runs, and the share of it that is done."""


def mend(seen: Evidence, suspects: Sequence[Fault], seconds: float, tell: Tell) -> Mending | None:
    """Train copies of the program, as it is and changed; None where there is no program that could be trained."""
    started = time.thread_time()
    if (program := UserProgram.of(seen)) is None:
        return None
    with seen.call.unchanged():
        tell("the program as it is", 0.0)
        try:
            own, cut = _own(program, suspects, seconds, seen)
        except Exception as error:  # the user's code, or a loss that takes no such outputs
            seen.stopped = raised(error)
            return None
        sound, slow = Mending(own).sound and not own.idle, (_slow(own) and own.right < ENOUGH) or own.by_heart
        short = (own.steps < STEPS or cut) and math.isfinite(own.known) and not (sound or suspects)  # for want of time
        suspects = _standing(own, suspects) if sound else suspects
        if program.untold and not sound and not math.isnan(own.known):
            fall = f"falls by {max(own.known, 0):.0%} in {own.steps} steps{own.idle}"
            seen.untold = f"the loss reads no targets of the examples, and {fall}; see whether its outputs are of use."
            return None
        number = STEPS if program.call.examples >= FEW else LONG // 5
        length = max(FEWEST, min(number, int(seconds / TRIES / max(own.seconds / own.steps, 1e-9))))
        tried, why = list[Tried](), ""
        order = iter(()) if short and own.steps < FEWEST else _order(suspects, tried, sound and not slow)
        if sound and not (suspects or slow):
            length, slowing = own.steps, (c for c in CHANGES if own.slowly and (own.above or c.name in SLOWED))
            order = ((change,) for change in slowing)
        if own.sank and not suspects:  # at a lower rate it does so later
            order = ((change,) for change in CHANGES if change.name == "sign")
        most = 0.95 * seconds  # what came before takes some, and the looks do
        try:
            for changes in order:
                if (spent := time.thread_time() - started) > most:
                    why = f"Further changes: {seconds:.0f} CPU seconds are over; pass seconds= for more."
                    break
                tell(" and ".join(change.name for change in changes), min(spent / seconds, 1.0))
                done = _try(program, seen, changes, own, length, min(2 * seconds / TRIES, most - spent))
                tried += [] if done is None else [done]
                if done is not None and done.mends and len(changes) > 1:
                    break
        except KeyboardInterrupt:
            why = "Further changes: stopped by Ctrl-C."
    if short and not any(one.mends and one.trained.known >= CLEARLY for one in tried):
        seen.stopped = f"{own.steps} steps in {own.seconds:.0f} CPU seconds are too few; pass seconds= for more"
        return None
    return Mending(own, tuple(tried), why)


def _own(program: UserProgram, suspects: Sequence[Fault], seconds: float, seen: Evidence) -> tuple[Trained, bool]:
    """The program as it is, and whether its seconds were too few. One in which nothing was seen, or that learns, has
    many epochs to show that it is slow, and one at least where these are long; of a sample they mean nothing.
    """
    program.read_for(seconds / 60)
    copied = program.copied()
    own, count = copied.train(STEPS, seconds / 6), program.call.examples
    epochs = EPOCHS * max(seen.steps, math.ceil(count / program.size))
    number = LONG if count < FEW else min(epochs, max(MOST, seen.steps))
    at_once = program.size >= count - program.held  # who steps over all examples at once has thousands of epochs
    if (at_once and count - program.held >= FEW) or (seen.data is None and count >= FEW):
        number = MOST
    loss = seen.reach if program.step is None and not (seen.reach is None or seen.reach.sums) else None
    plain = loss.constant if loss is not None and loss.constant > 0 else math.inf
    unsure = (own.steps >= STEPS and copied.now > plain) or own.alike < 1 / 2
    enough = (own.known >= CLEARLY or not suspects) and not unsure if own.learns else bool(suspects)
    if not (enough or math.isnan(own.known) or number <= own.steps):
        own = own.then(copied.train(number - own.steps, seconds / 4, seed=1))
        if own.steps < number and own.known > max(0.005, 3 * own.curve[-2][1]):  # it takes off
            own = own.then(copied.train(number - own.steps, seconds / 4, seed=2))
        own = replace(own, early=own.early or (number < epochs and not at_once))
    own = replace(own, above=copied.now > plain)
    doubts = any(f.kind in ("learning rate", "optimizer", "loss") for f in suspects)
    doubts |= any(float(group.get("momentum") or 0) > 0.95 for group in program.optimizer.param_groups)
    doubts |= max(own.losses) > (1 if min(own.losses) < FALLEN * own.losses[0] else UNSTEADY) * own.losses[0] > 0
    if own.learns and own.steps < STEPS <= number and doubts and program.step is None:
        # a rate that is too large, or a logarithm of 0, may come out later; whether it goes on to know them then
        later = copied.train(2 * STEPS - own.steps, seconds / 6, seed=1, enough=math.inf)
        looks = sorted(0.0 if math.isnan(known) else known for _, known in later.curve[1:])
        own = own if math.isfinite(later.known) and looks[len(looks) // 2] >= CLEARLY else own.then(later)
    known, most, least = BY_HEART
    words = [t[0].numel() if not t.is_floating_point() else MANY for _, t in parts(program.call.batch) if t.dim()]
    ids = sum(words) <= 4 and count >= SAMPLED  # of pairs of names a sample tells little of others
    if ids or own.held is None or own.others < least or not own.known >= known or own.held >= max(most, own.known / 2):
        return own, own.steps < number
    before, none = own, own.held < max(most, own.known / 8)
    little = 1 / 2 if own.others >= MANY and none else 1 / 8
    while not suspects and own.held is not None and own.held < own.known / 2 and own.steps < MOST:
        if not none and own.known >= ENOUGH and own.held < own.known * little:
            break  # later its errors are so certain that they differ by chance
        # large embeddings are fitted to single examples before what the examples share is found
        own = own.then(copied.train(own.steps, seconds / 4, seed=own.steps, enough=math.inf))
        if own.seconds - before.seconds > seconds / 4:
            break
    by_heart = own.held is not None and own.held < own.known * little and not _told_by_more(seen, seconds)
    return (replace(own, by_heart=by_heart) if by_heart or none else before), own.steps < number


def _told_by_more(seen: Evidence, seconds: float) -> bool:
    """Whether of more examples, each seen four times, anything is known of others: little, where noise is much."""
    known = None if seen.more is None else seen.more()
    if known is None or any(len(t) < 3 * SAMPLED for side in known for _, t in parts(side)):  # most were seen
        return False
    program = UserProgram.of(replace(seen, data=known))
    assert program is not None  # else there was no training of fewer
    program.read = SAMPLED
    held = program.copied().train(4 * program.call.examples // program.size, seconds / 4, enough=math.inf).held
    return held is not None and held >= BY_HEART[1] / 2


def _standing(own: Trained, suspects: Sequence[Fault], tried: Sequence[Tried] | None = None) -> Sequence[Fault]:
    """The suspected faults that stand though the program learns: certain ones, or all if it learns little or by heart.
    That it learns shows that its rate will do. Before anything was tried, what might slow it down stands.
    """
    if min(own.known, CLEARLY if own.held is None else own.held) < KNOWS or own.known < CLEARLY:
        return suspects
    sooner = {item.kinds[0] for item in tried or () if len(item.kinds) == 1 and _sooner(own, item.trained)}
    may = SLOWING if tried is None else [kind for kind in SLOWING if kind in sooner]
    sure = {*certain(suspects)} | {fault for fault in suspects if own.untold and fault.kind in UNREFUTED}
    return [f for f in suspects if f in sure or (f.certainty >= SOONER[0] and f.kind in may)]


def certain(suspects: Sequence[Fault]) -> tuple[Fault, ...]:
    """Those that need no trial: of 678 sound programs one has such."""
    return tuple(fault for fault in suspects if fault.certainty >= SURE and fault.kind != "learning rate")


def _slow(own: Trained) -> bool:
    """Whether it learns, but knows little after many epochs; some need many with Adam's usual steps."""
    return own.steps > STEPS and own.known < SLOW and not (own.untold or own.early)


def _sooner(own: Trained, changed: Trained) -> bool:
    """Whether a changed copy knows as much in half the steps, and much more than the program then."""
    early = [(step, known) for step, known in changed.curve if 0 < 2 * step <= own.steps]
    then = [next(known for later, known in own.curve if later >= step) for step, _ in early]
    return any(known >= max(own.known, before + SOONER[1]) for (_, known), before in zip(early, then, strict=True))


def _order(suspects: Sequence[Fault], tried: Sequence[Tried], only: bool) -> Iterator[tuple[Change, ...]]:
    """The changes suspected, alone and in pairs; the others; pairs of those that helped most, unless one mended it."""
    kinds = list(dict.fromkeys(fault.kind for fault in suspects))

    def best() -> list[Change]:
        alone = [(item.trained.known, item.changes[0]) for item in tried if len(item.changes) == 1]
        return [change for _, change in sorted(alone, key=lambda pair: 1.0 if math.isnan(pair[0]) else -pair[0])]

    def unmended(changes: Sequence[Change]) -> Iterator[tuple[Change, ...]]:
        pairs = (pair for pair in combinations(changes, 2) if pair[0].kind != pair[1].kind)
        return (pair for pair in pairs if not any(item.mends for item in tried))

    sure = {fault.kind for fault in suspects if fault.certainty >= SURE}

    def found() -> bool:
        return any(item.mends and item.kinds[0] in sure for item in tried)

    yield from ((c,) for kind in kinds for c in CHANGES if c.kind == kind and not found())
    leading = {change.kind: change for change in reversed(best())}
    yield from unmended([leading[kind] for kind in kinds if kind in leading][:3])
    if only:
        return  # what was not suspected is then hardly ever the cause
    few = found()
    yield from ((c,) for c in CHANGES if c.kind not in kinds and (c.kind in ALSO or not few))
    yield from unmended(best()[:4])


def _try(
    program: UserProgram, seen: Evidence, changes: tuple[Change, ...], own: Trained, steps: int, seconds: float
) -> Tried | None:
    """Make changes on a copy and train it; None where one of them does not apply."""
    if program.call.targets is None and any(change.where in INSIDE for change in changes):
        return None
    copied = program.copied()
    try:
        if not all(fixes := tuple(change.make(copied, seen) for change in changes)):
            return None
        trained = copied.train(steps, seconds)
    except Exception:  # what cannot be made or trained is no cure
        return None
    # what is known before a step was not learned, but for weights drawn anew
    chance = trained.curve[0][1] if changes[0].kind != "initialization" else 0.0
    better = not max(own.known, chance) + BETTER > trained.known and (trained.held or 0) > -KNOWS  # own may be NaN
    if own.by_heart:  # of the examples that were held out
        better = (trained.held or 0) >= max(CLEARLY, (own.held or 0) + SOONER[1])
    return Tried(changes, fixes, trained, trained.learns and better)


def ranked(suspects: Sequence[Fault], done: Mending | None) -> tuple[Fault, ...]:
    """The faults seen and the changes that repair it, most certain first."""
    if done is None:
        return tuple(suspects)
    best: dict[str, Tried] = {}
    for one in done.mended:
        for kind in one.kinds:
            best.setdefault(kind, one)
    suspects = _standing(done.own, suspects, done.tried) if done.sound else suspects
    could, found = {item.kinds[0] for item in done.tried}, []
    for fault in suspects:
        if fault.fix == CUT and fault.kind not in best and (best.keys() & {"initialization", "input scale"}):
            fault = replace(fault, certainty=0.3 * fault.certainty)  # these open nothing that is cut off
        if (mended := best.get(fault.kind)) is not None:
            cure, more = _cure(done.own, mended), fault.kind in KEPT and fault.fix not in mended.fixes
            fault = replace(fault, fix=f"{fault.fix} Or: {cure}" if more else cure, evidence="mended on a copy")
        elif best and fault.kind == "learning rate" and fault.kind in could:  # other rates are all there is to a rate
            fault = replace(fault, certainty=0.3 * fault.certainty)
        if fault.kind in AS_SAID and fault.kind in could and fault.kind not in best and not done.sound:
            fault = replace(fault, fix=f"{fault.fix} On a copy this alone did not mend it.")
        found.append(weighed(fault))
    own, strong, seen = done.own, any(f.certainty >= 0.5 for f in found), {f.kind for f in suspects}
    hardly: list[Fault] = []  # what helps where nothing is found, but not much
    for kind, one in () if done.sound else [(kind, item) for kind, item in best.items() if kind not in seen]:
        clearly = (one.trained.held if one.trained.held is not None else one.trained.known) >= CLEARLY
        certainty = ALONE.get(kind, 0.25) * (0.5 if strong or not clearly else 1.0)
        message, where = f"As it is, {own.summary()}.", one.changes[one.kinds.index(kind)].where
        if own.learns:
            known, of = (own.held, "held-out examples") if own.by_heart else (own.known, "the targets")
            message = f"In {own.steps} steps the outputs come to know {of} to {max(known or 0, 0):.0%} only."
        fault = Fault(kind, where, message, _cure(own, one), "mended on a copy", certainty)
        said = [weighed(fault, alone=True)]
        if USUAL_LOOP in one.fixes:  # the body may do more than step otherwise, of which none was tried by itself
            untried = replace(said[0], evidence="trial")
            rate = [] if 0.5 < own.rate < 2 else [replace(untried, kind="learning rate", fix=SCHEDULE)]
            said = [*rate, *said, *(replace(untried, kind=other, fix=PAIRED) for other in ("labels", "data"))]
        (found if clearly else hardly).extend(said)
    if own.rate < SCHEDULED and not own.known >= ENOUGH:
        message = f"In {own.steps} steps the loop body brings the learning rate down to {own.rate:.1g} times its start."
        found.append(Fault("learning rate", "step", message, SCHEDULE, "trial", 0.9))
    if own.known <= -KNOWS and own.known < own.curve[0][1] - KNOWS / 2 and not own.learns:
        message = f"Trained, the loss is {-own.known:.0%} higher with the right targets than with others'."
        found.append(Fault("loss", "loss", message, "Look at the sign of the loss.", "trial", 0.7))
    if own.alike < COLLAPSED:
        message = f"Trained, the outputs of different examples differ {own.alike:.1%} as much as before."
        fix = "Look at the terms of the loss, one against the other: one of them is lowest where all outputs are alike."
        found.append(Fault("loss", "loss", message, fix, "trial", 0.7))
    if own.batched >= CLEARLY:
        message = f"With the statistics of a batch the outputs know {own.batched:.0%}, without {max(own.known, 0):.0%}."
        fix = "Use each batch norm in one place, with the usual momentum and batches of more examples."
        found.append(Fault("normalization", "model", message, fix, "trial", 0.7))
    if own.by_heart and not best:
        message = f"The outputs come to know {own.known:.0%} of the examples in training, {own.held:.0%} of others."
        kinds, kinds_found = {fault.kind for fault in HEART}, {fault.kind for fault in found}
        found = [replace(f, certainty=max(f.certainty, 0.6)) if f.kind in kinds else f for f in found]
        found += [replace(fault, message=message) for fault in HEART if fault.kind not in kinds_found]
    if found and not done.sound:
        found += [replace(fault, certainty=min(fault.certainty, HARDLY)) for fault in hardly]
    elif not done.sound and done.tried and (not done.stopped or own.steps > STEPS):
        message = f"In {own.steps} steps the outputs do not come to know the targets, and none of the "
        message += f"{len(done.tried)} changes that were tried mends it{' clearly of all' if hardly else ''}."
        # with a single linear map there is little to be mended
        maps = [item.fixes[0] for item in done.tried if item.changes[0].name == "between"][:1]
        found += [Fault("hidden activation", "model", message, fix, "trial", 0.35) for fix in maps]
        kinds_found = {fault.kind for fault in hardly}
        found += [*hardly, *(replace(fault, message=message) for fault in UNEXPLAINED if fault.kind not in kinds_found)]
    return tuple(sorted(found, key=lambda fault: -fault.certainty))


def weighed(fault: Fault, alone: bool = False) -> Fault:
    """The fault with its certainty calibrated: how often faults stated with that certainty were true."""
    slope, mended, unsuspected, base = CERTAINTY
    sure = math.log(fault.certainty / (1 - fault.certainty))
    weight = slope * sure + mended * (fault.evidence != "step 0") + unsuspected * alone + base
    return replace(fault, certainty=1 / (1 + math.exp(-weight)))


def _cure(own: Trained, mended: Tried) -> str:
    known = own.held if own.by_heart else own.known
    before = "its loss is no number" if math.isnan(own.known) else f"to {max(known or 0, 0):.0%} after {own.steps}"
    after = f"after {mended.trained.steps} steps the outputs know the targets to {mended.trained.known:.0%}"
    after += f", of held-out examples to {mended.trained.held:.0%}" if own.by_heart else ""
    return f"{' '.join(mended.fixes)} Tried on a copy: {after}; as it is, {before}."
