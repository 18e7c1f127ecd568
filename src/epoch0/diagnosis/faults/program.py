"""A copy of the user's program that may be changed and trained: do its outputs learn the targets?

The measure is the same for any task: how far the loss with each example's target lies below the loss with another's,
relative to the latter. It is 0 for a constant answer, near 1 where the outputs know the targets. Where there are no
targets, or the loss does not read them, it is how far the loss falls, and may only speak for a program.
"""

import contextlib
import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epoch0.diagnosis.faults.evidence import Evidence, OwnStep, copied, rate_of, stepped
from epoch0.diagnosis.faults.reach import ROWS, reach
from epoch0.diagnosis.trial import pairs_apart, shuffled
from epoch0.seeds import generator
from epoch0.tracing.call import Call, as_written, mapped, parts, same_shapes
from epoch0.tracing.guard import denormals_as_zero, same_noise, unchanged

READ, FEWEST = 128, 4  # examples with which it is measured what the outputs know, and the fewest
HELD = 80  # examples from which on a quarter of them is held out of training
OTHERS = 4  # how often the targets are exchanged among them

# Values of this measure from which on the outputs know anything of the targets, know them clearly, training may end.
KNOWS, CLEARLY, ENOUGH = 0.12, 0.3, 0.6
FEW, ALL = 16, 0.8  # fewer examples are a table, known where this share of it is: an XOR without its last row is not
EXPLODING = 0.1  # the loss has fallen by less than this share of what it lies below that with others' targets
BOTTOMLESS = 100  # times the first loss: no likelihood falls so far below 0
NONE = 0.01  # a part of the loss that is nothing beside it
SLOWEST = 0.01  # momentum of batch norm that is usual (MobileNetV3): some 500 steps until it forgets where it began
ADAM, USUAL = (torch.optim.Adam, torch.optim.AdamW), 1e-3  # with their usual rate
LOOKS = 8  # how often in a training it is measured what the outputs know


@dataclass(frozen=True)
class Trained:
    """The training of a program for a few steps."""

    curve: tuple[tuple[int, float], ...] = field(repr=False)  # steps, and the measure after them, NaN if it is none
    losses: tuple[float, ...] = field(repr=False)  # of each step of the loop; they end where one is not finite
    held: float | None  # the share at the end for examples that were held out; None without
    seconds: float  # CPU seconds
    rate: float = 1.0  # the learning rate at the end over that at the start
    bar: float = KNOWS  # the share from which its outputs know the targets
    others: int = 0  # how many examples were held out
    above: bool = False  # whether its loss is above that of the best answer that is the same for all
    by_heart: bool = False  # whether it knows those in training alone, however long it goes on
    untold: bool = False  # whether what is known is by how much the loss has fallen
    sank: bool = False  # whether its loss falls without bound
    idle: str = ""  # why the fall of a loss says nothing
    early: bool = False  # whether it may well be slow: Adam trains it at its usual rate, or few epochs were seen
    alike: float = 1.0  # where nobody says what is right: how far the outputs of examples differ, as a share of before
    right: float = 0.0  # of what rewards train: the share whose largest output is right, above that of one answer
    batched: float = math.nan  # the share with the statistics of batches, where that with running ones is small

    @property
    def known(self) -> float:
        """How much the outputs know of the targets after training."""
        return self.curve[-1][1]

    @property
    def shared(self) -> float:
        """The same, or twice that of held-out examples where that is less: what is fitted to noise alone is nothing."""
        return self.known if self.held is None or self.others < HELD // 4 else min(self.known, 2 * self.held)

    @property
    def steps(self) -> int:
        return len(self.losses)

    def then(self, more: "Trained") -> "Trained":
        """This training continued by another."""
        curve = (*self.curve, *((self.steps + step, known) for step, known in more.curve[1:]))
        losses, seconds = self.losses + more.losses, self.seconds + more.seconds
        return dataclasses.replace(more, curve=curve, losses=losses, seconds=seconds, rate=self.rate * more.rate)

    def summary(self) -> str:
        """The result in a clause."""
        if math.isnan(self.known):
            return "the loss stops being a number"
        if self.right >= ENOUGH:
            return (
                f"its largest outputs come to be the right classes, {self.right:.0%} of the way from one answer for all"
            )
        if self.sank:
            return "its loss falls without bound"
        if self.untold:
            return f"its loss falls by {max(self.known, 0):.0%}"
        return f"its outputs come to know the targets to {max(self.known, 0):.0%}"

    @property
    def learns(self) -> bool:
        """Whether the outputs know the targets at the end."""
        return self.known >= self.bar or self.right >= ENOUGH

    @property
    def slowly(self) -> bool:
        """Whether they know little of them, and what they know is not by how much the loss falls."""
        return self.known < CLEARLY and self.right < ENOUGH and not self.untold


@dataclass
class UserProgram:
    """A model on all examples that are known, its loss, optimizer, batch size and loop body."""

    call: Call  # the model, the examples and their targets; its criterion is the loss
    optimizer: torch.optim.Optimizer  # over the model
    size: int  # examples a step
    step: OwnStep | None  # the user's loop body, or None for the usual one
    loss: Callable[..., Tensor]  # of outputs and targets
    held: int = 0  # examples at the end that are held out of training
    whole: bool = False  # whether the loss takes all that the model returns, and not THE output
    ordered: bool = False  # whether the examples come in their order
    off: bool = False  # whether the loss has a floor that is not zero, as likelihoods of counts have
    untold: bool = False  # whether nobody says what is right: it is looked at how far the loss falls
    sign: float = 1.0  # minus one where the loss is maximized
    sank: bool = False  # whether it fell without bound
    floors: dict[int, float] = dataclasses.field(default_factory=dict)  # first example that is read -> the loss's floor
    idle: str = ""  # why the fall of the loss says nothing
    read: int = READ  # examples that a look reads, fewer where these take long
    begun: float = math.nan  # the loss before training, with the targets of others if these are told
    now: float = math.nan  # the loss at the last look
    varied: float = math.nan  # how far the outputs of examples differ before training, where nobody says what is right
    alike: float = 1.0  # the same at the last look, relative to that

    @classmethod
    def of(cls, seen: Evidence) -> "UserProgram | None":
        """The user's program; None where a part of it is missing that a training needs."""
        call, known = seen.call, seen.data or (None, None)
        # whether examples can be given the targets of others: these stand apart, or at a known place in the batch
        apart = any(tensor.dim() for _, tensor in parts(call.targets))
        placed = call.targets is None and call.labels is not None
        if len(seen.optimizers) != 1 or seen.blind or not call.has_loss:
            return None
        if call.splits and known[0] is not None and (call.targets is None or known[1] is not None):
            kind, pair = Mapping if call.targets is None else Tensor, isinstance(call.batch, tuple | list)
            pair = pair and call.targets is None and len(call.batch) == 2
            pair = pair and (known[1] is not None or call.batch[1] is None)
            whole = known if call.targets is not None else (known if pair else known[0],)
            if pair or isinstance(call.batch, kind) or same_shapes(known[0], call.batch):
                call = Call.of(call.model, *whole, loss=call.criterion, forward=call.forward)
        if call.examples < 4:
            return None
        untold = not ((apart and seen.reads_targets) or (placed and cls._placed_targets_are_read(call)))
        size, held = call.examples, 0
        if call.splits:
            held = size // 4 if size >= HELD else 0
            drawn, trained = torch.randperm(size, generator=generator(0, 0x6865)), size - held
            call = call.rows(torch.cat([drawn[:trained].sort()[0], drawn[trained:]]) if seen.ordered else drawn)
            usual = size if isinstance(seen.optimizers[0], torch.optim.LBFGS) else 32
            if seen.reach is not None and seen.reach.sums:  # a rate for sums goes with the number of examples in a step
                usual = seen.call.examples
            size = min(seen.batch_size or usual, trained)
        counts = isinstance(call.targets, Tensor) and call.targets.is_floating_point() and bool(call.targets.max() > 1)
        floor = 0.0 if seen.reach is None or seen.reach.last.name else seen.reach.free
        off = (counts and -math.inf < floor < 0) or (seen.reach is not None and floor > NONE * seen.reach.now)
        given = (call, seen.optimizers[0], size, seen.step, seen.loss_of, held, seen.whole, seen.ordered)
        return cls(*given, off, untold, -1.0 if seen.maximized else 1.0)

    @staticmethod
    def _placed_targets_are_read(call: Call) -> bool:
        """Whether the model's own loss changes when its examples get the labels of others."""
        assert call.labels is not None
        if len(call.labels[1]) != call.examples:
            return False
        with unchanged(call.model), torch.no_grad():
            call.model.eval()
            losses = []
            for one in (call, _turned(call, torch.arange(call.examples).roll(1))):
                same_noise()
                losses.append(float(one.loss(one.raw())))
        return losses[0] != losses[1]

    def copied(self) -> "UserProgram":
        """A copy that can be changed and trained."""
        model, optimizer, step, own = copied(self.call.model, self.optimizer, self.step, self.call.criterion)
        call, loss = dataclasses.replace(self.call, model=model, criterion=own), partial(self.loss, loss=own)
        return dataclasses.replace(self, call=call, optimizer=optimizer, step=step, loss=loss, floors={})

    def read_for(self, seconds: float) -> None:
        """Let a look take no longer than so many CPU seconds, or so many examples as a step."""
        started, one = time.thread_time(), self.call.rows(slice(self.size)) if self.call.splits else self.call
        with unchanged(one.model), torch.no_grad():
            one.model.eval()
            one.raw()
        spent = (time.thread_time() - started) * (1 + OTHERS if one.targets is None else 1)
        self.read = min(READ, max(self.size, FEWEST, int(self.size * seconds / max(spent, 1e-9))))

    def train(self, steps: int, seconds: float = math.inf, seed: int = 0, enough: float | None = None) -> Trained:
        """Train this program in place, for at most these steps or CPU seconds, or until its outputs know enough."""
        started, losses, curve = time.thread_time(), list[float](), [(0, self.known(seed))]
        rate = rate_of(self.optimizer)
        bar, usual = (KNOWS, ENOUGH) if self.call.examples >= FEW else (ALL, 0.9)
        same_noise(seed)
        with torch.enable_grad(), as_written(), denormals_as_zero():
            order = None if self.ordered else generator(seed, 0x6D65)
            for rows in shuffled(self.call, self.call.examples - self.held, self.size, order):
                self.call.model.train()
                try:
                    losses.append(self._one(rows))
                except Exception:
                    if not losses:
                        raise
                    losses.append(math.nan)  # a loss may refuse outputs that are no numbers
                spent = time.thread_time() - started
                last = not math.isfinite(losses[-1]) or len(losses) >= steps or spent > seconds
                if last or len(losses) % max(1, steps // LOOKS) == 0:
                    curve.append((len(losses), self.known(seed) if math.isfinite(losses[-1]) else math.nan))
                    if last or curve[-1][1] >= (usual if enough is None else enough):
                        break
        rest = slice(self.call.examples - self.held, None)
        norms = [m for m in self.call.model.modules() if getattr(m, "track_running_stats", False)]
        slowest = min((1.0 if (m := getattr(norm, "momentum", None)) is None else m for norm in norms), default=0.0)
        batched = self.known(seed, batches=True) if norms and not self.untold and curve[-1][1] < KNOWS else math.nan
        if lags := batched >= ENOUGH and slowest >= SLOWEST and (1 - slowest) ** len(losses) > 0.01:
            curve[-1], batched = (len(losses), batched), math.nan  # after longer training they will be as good
        apart = self.held and not self.untold and math.isfinite(losses[-1])
        held, others = self.known(seed, rest, batches=lags) if apart else None, self.held
        if held is not None and held < curve[-1][1] / 2 and self.call.targets is not None:
            held, others = self.ranked(held, lags)
        left = rate_of(self.optimizer) / rate if rate > 0 else 1.0
        spent = time.thread_time() - started
        right = self._right() if min(known for _, known in curve[-4:]) <= -KNOWS else 0.0  # a reward turns its sign
        told: dict[str, Any] = {"untold": self.untold, "idle": self.idle, "alike": self.alike, "batched": batched}
        told |= {"sank": self.sank, "early": isinstance(self.optimizer, ADAM) and rate >= USUAL, "right": right}
        return Trained(tuple(curve), tuple(losses), held, spent, left, bar, others, **told)

    def _right(self) -> float:
        few = self.call.rows(slice(0, self.read)) if self.call.splits else self.call
        with unchanged(few.model.eval()), torch.no_grad(), contextlib.suppress(Exception):  # no classes
            y = few.targets if few.labels is None else few.labels[1]
            hits, usual = few.output(few.raw()).argmax(1) == y, y == y.mode().values
            return float((hits.double().mean() - usual.double().mean()) / (1 - usual.double().mean()))
        return 0.0

    def ranked(self, held: float, batches: bool = False) -> tuple[float, int]:
        """What is known of the examples held out, and how many tell: all, or fewer where hardly a third are in pairs of
        different targets. It is by ranks, in which outputs far too certain do not weigh, where these are clear.
        """
        few = self.call.rows(slice(self.call.examples - self.held, None)).rows(slice(0, self.read))
        with unchanged(few.model), torch.no_grad():
            few.model.train(batches)
            share, pairs = pairs_apart(few, few.raw())
        clear = 2 * share - 1 > max(held, 3 / math.sqrt(max(pairs, 1)))
        return 2 * share - 1 if clear else held, min(self.held, 3 * pairs * self.held // few.examples)

    def _one(self, rows: Call) -> float:
        if self.step is None:
            return float(stepped(self.optimizer, lambda: self._loss(rows, rows.raw())).detach())
        with warnings.catch_warnings(action="ignore"):  # a schedule takes the copied optimizer for another
            value = self.step(rows.model, self.optimizer, self.loss, rows.batch, rows.targets)
        return float(value.detach() if isinstance(value, Tensor) else value if isinstance(value, int | float) else 0.0)

    def _loss(self, rows: Call, raw: Any) -> Tensor:
        if rows.targets is None:
            return rows.loss(raw)
        return self.loss(raw if isinstance(raw, Tensor) or self.whole else rows.output(raw), rows.targets)

    def known(self, seed: int = 0, of: slice | None = None, batches: bool = False) -> float:
        """How far the loss with the right targets lies below that with others', relative to the latter. Of the examples
        ``of``, in evaluation mode, or with the statistics of batches.
        """
        few = self.call
        if few.splits:
            of = slice(few.examples - self.held, None) if self.untold and self.held else of
            subset = few.rows(of or slice(0, few.examples - self.held))
            drawn = torch.randperm(subset.examples, generator=generator(seed, 0x6B6E))
            few = subset.rows(drawn[: min(self.read, ROWS) if self.off else self.read])
        with unchanged(few.model), torch.no_grad():
            few.model.train(batches)
            if (alone := few.targets is None and few.forward is None) or self.untold:
                same_noise(seed)
            if not bool((output := few.output(raw := few.raw())).isfinite().all()):
                return math.nan
            own, other, answered = self.sign * float(self._loss(few, raw)), 0.0, None
            self.now = own if of is None else self.now
            if self.untold:
                apart = float(output.double().reshape(len(output), -1).std(0).norm()) if len(output) > 1 else math.nan
                self.varied = apart if math.isnan(self.varied) else self.varied
                self.alike = apart / self.varied if self.varied > 0 else 1.0
                self.idle = ", to below 0, where shares say nothing" if own < 0 else ""
                self.begun = own if math.isnan(self.begun) else self.begun
                return (self.begun - own) / max(abs(self.begun), abs(own), 1e-12)
            for place in range(OTHERS):
                order = torch.arange(few.examples).roll(1 + place * few.examples // (OTHERS + 1))
                turned = _turned(few, order)
                if alone:
                    same_noise(seed)
                again = raw if few.targets is not None or answered is not None else turned.raw()
                if alone and answered is None and not torch.equal(few.output(again), output):
                    answered = few.own_loss()  # a decoder reads the labels, too: they get the outputs of others instead
                lies = float(self._loss(turned, again) if answered is None else answered(output[order]))
                other += self.sign * lies / OTHERS
        if not math.isfinite(own) or not math.isfinite(other):
            return 1.0 if math.isfinite(own) else math.nan
        if of is None and math.isnan(self.begun):
            self.begun = max(own, other)
        # outputs that explode differ for the targets, too, all of them or one for all the others; and without a floor
        if of is None and own < -BOTTOMLESS * max(abs(self.begun), 1.0):
            self.sank = True
            return 0.0
        if of is None and other > own > self.begun / 2 > 0 and self.begun - own < EXPLODING * (other - own):
            return 0.0
        if self.off and few.splits:
            if (place := int(drawn[0]) + (0 if of is None else self.call.examples)) not in self.floors:
                found = reach(output, few.targets, self.loss)
                self.floors[place] = -math.inf if found is None else found.free
            floor, top = self.floors[place], max(own, other)
            if -math.inf < floor < top - NONE * abs(top):
                return min((other - own) / (top - floor), 1.0)
        return min((other - own) / max(abs(other), abs(own), 1e-12), 1.0)  # without a floor no share


def _turned(call: Call, order: Tensor) -> Call:
    """The same examples with the targets of others."""
    if call.targets is not None:
        turned = mapped(call.targets, lambda t: t[order] if t.dim() and len(t) == len(order) else t)
        return dataclasses.replace(call, targets=turned)
    assert call.labels is not None  # else there is no such program
    place, labels = call.labels
    if isinstance(call.batch, Mapping):
        return dataclasses.replace(call, batch={**call.batch, place: labels[order]})
    return dataclasses.replace(call, batch=(call.batch[0], labels[order]))
