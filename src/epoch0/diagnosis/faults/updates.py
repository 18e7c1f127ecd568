"""Faults of the user's optimizer: its parameters, and what five of its steps do to a copy."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import CERTAIN, NORMS, After, Evidence, Fault, Loop, peak, rate_of
from epoch0.diagnosis.faults.program import ADAM
from epoch0.tracing.call import parts

LARGE, SMALL = 0.12, 1e-4  # median sizes of a step relative to its weights beyond which a rate is too high or too low
CLIPPED = 0.01  # the length of a gradient that the loop body leaves, over its own, from where it is clipped to nothing
RISE = 1.3  # loss after five steps over the larger of before and of one answer for all, from where the rate is too high


def coverage(seen: Evidence) -> Iterator[Fault]:
    """Trainable parameters that no optimizer holds, or of another model."""
    if not seen.optimizers:
        return
    trained = [(n, p) for n, p in seen.model.named_parameters() if p.requires_grad]
    held = {id(p) for o in seen.optimizers for g in o.param_groups for p in g["params"]}
    missing = [name for name, p in trained if id(p) not in held]
    if not trained:
        message, fix = "No parameter of the model requires a gradient.", "Set requires_grad on what is to be trained."
        yield Fault("gradient flow", "optimizer", message, fix, certainty=CERTAIN)
        yield Fault("update", "optimizer", message, fix, certainty=CERTAIN - 0.005)
    elif len(missing) == len(trained):
        message = f"The optimizer holds none of {len(trained)} parameters: it is another model's, or an earlier one's."
        yield Fault("update", "optimizer", message, "Make it last, of this model's parameters().", certainty=CERTAIN)
    elif missing and not seen.lone and any(seen.first.gradients.get(name) is not None for name in missing):
        message = f"{len(missing)} of {len(trained)} trainable parameters are in no optimizer, such as {missing[0]}."
        fix = "Make the optimizer after all layers, or freeze these parameters."
        order = [all(id(p) in held for p in own) for _, m, _ in seen.first.ran if (own := list(m.parameters(False)))]
        begins = order == sorted(order) and order[-1:] == [True]  # features that were learned before, say
        yield Fault("update", "optimizer", message, fix, certainty=0.8 if begins else CERTAIN)
    if seen.first.output is not None and (lost := seen.weights_of(seen.first.output)):
        message = f"{lost} weights are not among parameters(): layers in a Python list or dict are not found."
        fix = "Use nn.ModuleList or nn.ModuleDict, and make the optimizer after."
        yield Fault("update", "model", message, fix, certainty=CERTAIN)
    things = ((f"{n}.{key}".lstrip("."), v) for n, m in seen.model.named_modules() for key, v in vars(m).items())
    for name, value in ((n, v) for n, v in things if isinstance(v, Tensor) and v.requires_grad and v.is_leaf):
        if id(value) not in held and value.shape[:1] != (seen.call.examples,):  # not an input that is kept
            message = f"'{name}' is a tensor with a gradient and no nn.Parameter: the optimizer does not get it."
            yield Fault("update", name, message, "Wrap it in nn.Parameter before the optimizer.", certainty=CERTAIN)
            break
    rates = [peak(group) for item in seen.optimizers for group in item.param_groups]
    if rates and max(rates) == 0:
        yield Fault("learning rate", "optimizer", "The learning rate is 0.", "Give a rate above 0.", certainty=CERTAIN)
    if (momentum := max([g.get("momentum") or 0 for o in seen.optimizers for g in o.param_groups], default=0)) >= 0.99:
        text = f"With a momentum of {momentum:g} a step is nearly as long as the one before, or longer: 0.9 is usual."
        yield Fault("optimizer", "optimizer", text, "Set it to 0.9.", certainty=CERTAIN if momentum >= 1 else 0.7)


def uphill(seen: Evidence, after: After) -> Iterator[Fault]:
    """A first step along the gradient instead of against it, unless that is meant."""
    if after.towards >= 0.3 and not seen.maximized:
        fix = "Look at the sign of the update: a gradient negated, or maximize=True."
        yield Fault("update", "step", f"The first step goes uphill (cosine {after.towards:.2f}).", fix, certainty=0.97)


def renumbered(after: After) -> Iterator[Fault]:
    """Classes that the loop body numbers anew, otherwise in each batch."""
    known: dict[int, int] = {}
    for own, given in (item.classes for item in after.loop):
        pairs = dict.fromkeys(zip(own, given, strict=True))
        if sorted(own) == sorted(given) or len(dict(pairs)) < len(pairs):
            return  # at most in another order; noise, or mixed on purpose
        for one, as_given in pairs:
            if known.setdefault(one, as_given) != as_given:
                message = f"The loss gets class {one} as {known[one]} in one batch, and as {as_given} in a later one."
                yield Fault("labels", "step", message, "Number the classes once, for all examples.", certainty=0.985)
                return


def penalty(seen: Evidence, after: After) -> Iterator[Fault]:
    """A penalty of the weights, in the loss or added to it in the loop body, that pulls harder than the loss."""
    where, wanted, left = "loss", seen.through, {n: g for n, g in seen.first.gradients.items() if g is not None}
    if after.loop and not wanted:
        where, wanted, left = "step", after.loop[0].wanted, after.loop[0].left
    names = [n for n in wanted if n in left and wanted[n].dim() > 1]
    more = [(left[n] - wanted[n]).double().flatten() for n in names]
    slope, pull = _length(wanted[n] for n in names), _length(more)
    if not 0 < slope <= pull < math.inf:
        return
    extra, own = torch.cat(more), torch.cat([seen.model.get_parameter(n).detach().double().flatten() for n in names])
    by = torch.stack([own, own.sign()], 1)
    rest = extra - by @ torch.linalg.lstsq(by, extra[:, None]).solution[:, 0]
    if float(rest.norm()) < 0.05 * float(extra.norm()):
        message = f"A penalty of the weights pulls {pull / slope:.2g} times as hard as the rest of the loss."
        yield Fault("regularization", where, message, "Divide its factor by 1,000.", certainty=0.93)


def loop_body(seen: Evidence, after: After) -> Iterator[Fault]:
    """The user's loop body: its order, gradients that add up, another mode."""
    if not (loop := after.loop) or not loop[0].wanted:
        return
    first, second = loop[:2]
    modes = nn.modules.dropout._DropoutNd | nn.modules.batchnorm._BatchNorm
    if any(item.training is False for item in loop) and any(isinstance(m, modes) for m in seen.model.modules()):
        fix = "Call model.train() before each step: dropout and batch norm are otherwise off."
        yield Fault("update", "step", "The loop body runs the model in evaluation mode.", fix, certainty=0.7)
    if any(item.wanted for item in loop) and all(item.idle for item in loop):
        message = "Whenever the loop body steps, all gradients are zero or cleared."
        fix = "Call backward of the loss itself, not of a copy of its value, and clear no gradients before the step."
        if all(item.copy for item in loop):
            yield Fault("gradient flow", "step", message, fix, certainty=0.97)
            return
        yield Fault("update", "step", message, fix, certainty=0.84 if all(item.flat for item in loop) else 0.945)
    if not any(item.moved or item.left for item in loop):
        if all(item.flat for item in loop):
            message = f"In {len(loop)} steps the loss of the loop body has a gradient of exactly zero."
            fix = "See that each output meets its own target: what is averaged before may add up to nothing."
            yield Fault("loss", "step", message, fix, certainty=0.85)
        message = f"In {len(loop)} steps the loop body leaves no gradient and moves no parameter."
        fix = "Call zero_grad, backward and step for every batch: see how far they are indented."
        yield Fault("update", "step", message, fix, certainty=0.8)
        count = math.inf if seen.data is None else len(parts(seen.data[0])[0][1])
        if seen.batch_size is not None and seen.batch_size > count:
            message += f" The batches of {seen.batch_size} asked for are larger than the data, {count} examples."
            yield Fault("batch size", "step", message, "Use smaller batches, or keep the last one.", certainty=0.9)
    if not (both := [n for n in second.wanted if n in first.left and n in second.left]):
        return
    size, left = (_length(g[n] for n in both) for g in (first.wanted, first.left))
    share = max(left, 1e-300) / max(size, 1e-300)
    along = _apart(first.wanted, {n: g / share for n, g in first.left.items()}, both)
    if first.moved and share < CLIPPED and along < 0.05:
        message = f"The loop body shortens the gradient to {left:.1g}, {share:.1e} of its length."
        yield Fault("update", "step", message, "Clip gradients to a norm of about 1, not to nothing.", certainty=0.8)
    total = _apart(second.left, {n: first.left[n] + second.wanted[n] for n in both}, both)
    alone = _apart(second.left, second.wanted, both)
    if not any(item.moved for item in loop) and alone < 0.05:
        fix = "Call loss.backward() between optimizer.zero_grad() and optimizer.step(), and all three in every step."
        yield Fault("update", "step", "No step moves a parameter; each leaves a gradient behind.", fix, certainty=0.95)
    elif first.moved and second.moved and total < 0.05 < alone:  # else they are added up on purpose
        message = "The gradient of a step is added to those of the steps before."
        yield Fault("update", "step", message, "Call optimizer.zero_grad() before loss.backward().", certainty=0.9)
    for entry, two in pairwise(loop):
        if entry.moved and not (two.moved or first.moved) and _goes_on(entry, two, both):
            message = "Gradients are added up over several batches, and go on being added up after their step."
            yield Fault("update", "step", message, "Call optimizer.zero_grad() after optimizer.step().", certainty=0.9)


def _goes_on(one: Loop, two: Loop, names: Sequence[str]) -> bool:
    """Whether the gradients left by one step are added to those of the next batch."""
    if not all(n in held for n in names for held in (one.left, two.left, two.wanted)):
        return False
    own, kept, now = (torch.cat([g[n].double().flatten() for n in names]) for g in (two.wanted, one.left, two.left))
    more = torch.nn.functional.cosine_similarity(now - kept, own, 0)
    return float(more) > 0.99 and float(kept.norm()) > 0.1 * float((now - kept).norm())


def not_moved(seen: Evidence, after: After) -> Iterator[Fault]:
    """Weights that the loss pulls at and the optimizer holds, and that the user's loop body alone does not move."""
    pulled = [item.wanted for item in after.loop if item.wanted]
    still = [n for n in after.still if all(n in wanted and bool(wanted[n].any()) for wanted in pulled)]
    usual = any(item.moved for item in after.loop) and all(item.training is not False for item in after.loop)
    fix = "Look for torch.tensor, .detach(), .item() or no_grad between the outputs and the loss."
    if after.loop and not pulled and not any(item.moved or item.left for item in after.loop):
        message = f"In {len(after.loop)} steps the loop body moves no parameter of the model and leaves no gradient."
        yield Fault("gradient flow", "step", message, fix, certainty=0.85)
    if still and seen.first.open and usual:
        message = f"The loop body moves other weights, and {still[0]} not in {len(after.loop)} steps."
        yield Fault("gradient flow", "step", message, fix, certainty=0.92)


def too_far(seen: Evidence, after: After) -> Iterator[Fault]:
    """Steps so large that the loss rises, the gradient dies or the weights are replaced; and why they are so large."""
    if after.towards > 0.05 or seen.first.loss is None:
        return
    floor = seen.reach.constant if seen.reach is not None else -math.inf
    worse = not math.isfinite(after.after) or after.after > RISE * max(after.before, floor, 0) + 1e-9
    tables = {f"{name}.weight" for name, module in seen.model.named_modules() if isinstance(module, nn.Embedding)}
    sizes = [v for n, v in after.sizes.items() if math.isfinite(v) and n not in tables]
    large = statistics.median(sizes) if sizes and len(after.sizes) > 1 else 0.0
    matrices = [n for n, g in seen.first.gradients.items() if g is not None and g.dim() > 1 and bool(g.any())]
    died = [n for n in matrices if (g := after.late.gradients.get(n)) is None or not bool(g.any())]
    died = died if 2 * len(died) >= len(matrices) else []
    stays = after.after > 0.98 * after.before and (seen.batch_size or 8) >= 8  # fewer examples say little
    if not (worse or (large > LARGE and stays) or died):
        return
    rate = rate_of(seen.optimizers[0])
    if died:
        text = f"five steps leave {died[0]} without a gradient"
    elif worse:
        now = f"{after.after:.3g}" if math.isfinite(after.after) else "no number"
        was = f" instead of {after.before:.3g}" if math.isfinite(after.before) else ", as before"
        text = f"after five steps the loss of the same examples is {now}{was}"
    else:
        text = f"a step changes the weights by {large:.0%} of their size"
    targets, big = seen.targets, seen.first.size_in
    far = float(targets.double().abs().mean()) if targets is not None and targets.is_floating_point() else 0.0
    if seen.reach is not None and seen.reach.values and not seen.reach.exact:
        far = 0.0  # the loss brings the targets to another scale
    if big > 5:
        message = f"The first layer gets inputs of mean size {big:.3g}, and {text}."
        sure = 0.9 if math.isfinite(after.before) else 0.96  # it comes before what the loss makes of saturated outputs
        yield Fault("input scale", "inputs", message, "Standardize the inputs.", certainty=sure)
    elif far > 30:
        message = f"The targets have a mean size of {far:.3g}, and {text}."
        yield Fault("target scale", "targets", message, "Standardize the targets.", certainty=0.9)
    elif seen.reach is not None and seen.reach.sums and seen.call.examples > 1 and (seen.batch_size or 2) > 1:
        message = f"The loss adds its examples up instead of taking their mean, and {text}."
        yield Fault("loss", "loss", message, "Take the mean over the batch.", certainty=0.9)
    fix = f"Try a rate of {rate / 10:.1g}, or {rate / 100:.1g}."
    if math.isfinite(after.before):  # what is no number before a step is no matter of the rate
        yield Fault("learning rate", "optimizer", f"At a rate of {rate:.2g} {text}.", fix, certainty=0.85)


def too_short(seen: Evidence, after: After) -> Iterator[Fault]:
    """Steps so small that nothing happens: the rate, or targets that are far away."""
    slope = any(g is not None and bool(g.any()) for g in seen.first.gradients.values())
    if not math.isfinite(after.after) or not after.sizes or not slope:
        return
    sizes = sorted(v for n, v in after.sizes.items() if n not in after.still) or [0.0]
    middle, top = statistics.median(sizes), sizes[int(0.9 * (len(sizes) - 1))]
    rate, found = rate_of(seen.optimizers[0]) * after.rate, seen.reach
    if found is not None and found.values and found.exact:
        way = float((found.targets.double() - found.output).mean(0).abs().max())
        steps = way / max(after.moved / 5, 1e-30)
        if steps > 1000 and float(found.targets.double().abs().mean()) > 30 and after.before > 0:
            message = f"Targets lie {way:.3g} away, and five steps move the outputs by {after.moved:.2g}: "
            message += f"about {steps:,.0f} steps to their mean."
            yield Fault("target scale", "targets", message, "Standardize the targets.", certainty=0.84)  # a trial knows
            return
    small = SMALL * min(1.0, 32 / max(seen.steps, 1))  # long epochs do with smaller steps
    if middle < small and 0 < top < 3 * small:
        message = f"At a rate of {rate:.2g} a step changes the weights by only {middle:.1e} of their size."
        more = 10 ** max(1, round(-3 - math.log10(max(middle, 1e-12))))  # until it is about a thousandth
        yield Fault("learning rate", "optimizer", message, f"Try a rate of {rate * more:.1g}.", certainty=0.7)


def decay(seen: Evidence) -> Iterator[Fault]:
    """Weight decay that pulls harder at the weights than the loss does."""
    names, pulls = {id(p): name for name, p in seen.model.named_parameters()}, list[tuple[Tensor, Tensor]]()
    worst = most = 0.0
    for group, optimizer in ((g, o) for o in seen.optimizers for g in o.param_groups):
        strength = float(group.get("weight_decay", 0.0) or 0.0)
        if optimizer.param_groups[0].get("decoupled_weight_decay", type(optimizer).__name__ == "AdamW"):
            worst = max(worst, float(group["lr"]) * strength)
        else:
            slopes = ((p, seen.first.gradients.get(names.get(id(p), ""))) for p in group["params"])
            pulls += [(strength * p.detach(), g) for p, g in slopes if g is not None]
            most = max(most, strength)
    pull, slope = (_length(pair[i] for pair in pulls) for i in (0, 1))
    if 0 < slope < pull and max(worst, most) >= 0.01:
        message = f"Weight decay pulls {pull / slope:.2g} times as hard at the weights as the loss does."
    elif worst > 0.01:
        message = f"Weight decay takes {worst:.1%} of the weights away in every step."
    else:
        return
    yield Fault("regularization", "optimizer", message, "Divide the weight decay by 1,000.", certainty=0.85)


def settings(seen: Evidence) -> Iterator[Fault]:
    """Dropout of nearly all, norms whose averages stay where they began or whose epsilon is large, Adam's epsilon."""
    ran = [(n, m) for n, m, _ in seen.first.ran]
    drops = [(n, m.p) for n, m in ran if isinstance(m, nn.modules.dropout._DropoutNd)]
    for name, p in [one for one in (*drops, *(("F.dropout", p) for p in seen.first.dropped)) if one[1] > 0.9][:1]:
        fix = f"p is the share that is dropped: {1 - p:.2g} keeps {100 * p:.4g}%."  # often what was meant to be kept
        yield Fault("regularization", name, f"Dropout '{name}' drops {100 * p:.4g}%.", fix, certainty=0.85)
    for name, p in [(n, p) for n, p in drops if n == seen.first.last and seen.targets is not None][:1]:
        sure = 0.87 if seen.targets is not None and seen.targets.is_floating_point() else 0.6
        message = f"'{name}' is the last module: in training {p:.0%} of the outputs are zero."
        yield Fault("regularization", name, message, "Leave dropout out at the end.", certainty=sure)
    for name in [n for n, m in ran if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.momentum == 0.0][:1]:
        message = f"{name} has a momentum of 0: its running averages stay where they began, and evaluation uses them."
        yield Fault("normalization", name, message, "Use the default momentum of 0.1.", certainty=0.9)
    for name, norm in [(n, m) for n, m in ran if isinstance(m, NORMS) and m.eps >= 1][:1]:
        message = f"{name} divides by the root of the variance and {norm.eps:g}, its epsilon, which hides the variance."
        yield Fault("normalization", name, message, "Use the default epsilon, 1e-5.", certainty=0.9)
    slopes = [g for g in seen.first.gradients.values() if g is not None]
    size = _length(slopes) / math.sqrt(sum(g.numel() for g in slopes)) if slopes else math.inf
    usual = [g for o in seen.optimizers for g in o.param_groups if isinstance(o, (*ADAM, torch.optim.RMSprop))]
    for eps in [group["eps"] for group in usual if group["eps"] > max(1e-4, 10 * size)][:1]:
        message = f"Gradients are of size {size:.2g}, so steps are divided by the optimizer's epsilon of {eps:g} alone."
        yield Fault("optimizer", "optimizer", message, "Leave it at 1e-8.", certainty=0.8)
    for name in [n for n, m in ran if isinstance(m, nn.BatchNorm1d) and seen.batch_size == 1][:1]:
        message = f"Batches hold one example, and {name} subtracts its mean."
        yield Fault("batch size", "data", message, "Take larger batches.", certainty=0.8)


def _apart(one: Mapping[str, Tensor], other: Mapping[str, Tensor], names: Sequence[str]) -> float:
    """Distance of two gradients relative to the first."""
    return _length(one[n] - other[n] for n in names) / max(_length(one[n] for n in names), 1e-150)


def _length(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))
