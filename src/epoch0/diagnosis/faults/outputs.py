"""Faults that show in the lowest loss possible: the last activation, the loss, shapes, the scale of the targets."""

import math
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import CERTAIN, Evidence, Fault, Pass
from epoch0.diagnosis.faults.reach import SOFTMAXES, Reach, behind, one_hot, tried

GAP = 0.05  # the last activation hides this share of what can be learned, or it is none of its faults
ALIKE = 0.01  # the best loss and the best constant answer's are the same within this share

SAME_SHAPE = "Give both the same shape: targets[:, None], or outputs.squeeze(1)."
VALUES = "Values take another loss, such as nn.MSELoss, without a sigmoid; bring them to mean 0 and deviation 1."
PROBABILITIES = "The loss expects probabilities: end the model with a softmax or a sigmoid, or use a loss of logits."
NAMES = {"Relu": "ReLU", "LogSoftmax": "log-softmax", "LeakyRelu": "leaky ReLU"}


def last_activation_hides(reach: Reach) -> Iterator[Fault]:
    """The best loss through the last activation lies well above the best loss: a softmax twice, a range too narrow."""
    if reach.last.name == "Softmax" and bool((reach.output == 1).all()):
        fix = "Use a sigmoid, a softmax over other dimensions, or no activation for values."
        yield Fault("output activation", "outputs", "A softmax over one unit is always 1.", fix, certainty=CERTAIN)
        return
    if not reach.last.name or not math.isfinite(reach.free):
        return
    gain = max(reach.constant, reach.through) - reach.least
    if gain <= 1e-9 + 1e-3 * abs(reach.constant) + 1e-5 * abs(reach.now) or (reach.through - reach.least) / gain < GAP:
        return
    little = GAP * abs(reach.constant)
    if reach.through < little and reach.values:
        shares = reach.last.name in ("Softmax", "Sigmoid") and one_hot(reach.targets)  # whose own loss may be 0 log 0
        if shares or float(reach.score(reach.targets.double())) < little:
            return  # the targets are in the range of the outputs, and cost nothing: below that lies no better answer
    name = NAMES.get(reach.last.name, reach.last.name.lower())
    share = min(1.0, (reach.through - reach.least) / gain)
    message = f"Through the {name} at its end the loss can fall to {reach.through:.3g} at best, without it to "
    message += f"{reach.free:.3g}; one answer for all examples has {reach.constant:.3g}."
    inside = name == "sigmoid" and 0 <= float(reach.targets.min()) <= float(reach.targets.max()) <= 1
    if inside or not reach.targets.is_floating_point():
        fix = f"The loss takes logits: leave the {name} out."
    elif reach.last.name == "Softmax" and not one_hot(reach.targets):
        fix = "The targets of an example do not add up to 1: use a sigmoid for each, or no activation for values."
    else:
        fix = f"Leave the {name} out, or bring the targets into its range."
    yield Fault("output activation", "outputs", message, fix, certainty=0.62 + 0.29 * min(1.0, 3 * share))
    if reach.targets.is_floating_point() and float(reach.targets.abs().max()) > 30:
        yield Fault("target scale", "targets", message, "Bring the targets into the outputs' range.", certainty=0.5)


def state_as_output(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """Outputs that are the state of a recurrent layer, beside targets that no state reaches."""
    weighted = [(name, module) for name, module, _ in seen.first.ran if list(module.parameters(False))]
    far = float(reach.targets.abs().max()) if reach.values else 0.0
    if far > 1 and weighted and isinstance(weighted[-1][1], nn.LSTM | nn.GRU) and float(reach.output.abs().max()) <= 1:
        message = f"The outputs are the state of '{weighted[-1][0]}', within -1 and 1; targets go to {far:.3g}."
        yield Fault("architecture", weighted[-1][0], message, "Put a linear layer behind it.", certainty=0.89)


def table_of_examples(seen: Evidence) -> Iterator[Fault]:
    """A row of all examples meets a column of them, and makes a table; or several outputs meet one target."""
    for name, outputs in seen.first.tables[:1]:
        fix = SAME_SHAPE
        if isinstance(outputs, tuple):
            shapes = " and ".join(str(("n", *shape[1:])).replace("'", "") for shape in outputs)
            message = f"'{name}' of shapes {shapes}, n the {seen.call.examples} examples, compares each with each."
        else:
            message = f"'{name}' compares {outputs} outputs of an example, (n, {outputs}), with its one target, (n, 1)."
            fix = "Pick the output that the target is of, outputs.gather(1, index), or give the model a single one."
            if (t := seen.targets) is not None and bool(torch.isin(t, torch.arange(outputs, device=t.device)).all()):
                yield Fault("labels", "targets", message, "Make them one-hot, or use cross-entropy.", certainty=0.99)
        yield Fault("shapes", "loss", message, fix, certainty=0.98)


def one_answer_is_best(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """The same answer for all examples is as good as any: shapes that broadcast, targets without differences."""
    if len(reach.targets) < 4 or not all(map(math.isfinite, (reach.free, reach.through, reach.constant))):
        return
    if reach.constant < reach.free - max(0.005 * abs(reach.free), 1e-4 * abs(reach.now)):
        return  # the best of all was not found
    alike = reach.targets[:1].expand_as(reach.targets)
    same, shares = not (seen.reads_targets or _other(seen, reach, alike)), reach.values and one_hot(reach.targets)
    if shares and same and bool((reach.targets != alike).any()) and _other(seen, reach, reach.targets + 1):
        message = f"The loss is {reach.now:.3g} whichever class is right; one answer for all has {reach.constant:.3g}."
        fix = "Multiply targets and logarithms before the sum over the classes, and not after."
        yield Fault("loss", "loss", message, fix, certainty=0.95)
        return
    near = reach.constant - reach.least <= ALIKE * (reach.now - reach.least)  # next to what there is to learn at first
    far = (reach.constant - reach.least) / max(abs(reach.constant), 1e-12) > (10 * ALIKE if near else ALIKE)
    idle = _idle(reach) if (near or not far) and bool((reach.targets != reach.targets[:1]).any()) else None
    if far and idle is None and (seen.reads_targets or not near):
        return
    numbers = f"One answer for all examples has a loss of {reach.constant:.3g}, the best of all {reach.least:.3g}"
    labels = reach.targets if reach.targets.is_floating_point() else reach.targets[reach.targets >= 0]
    varied = bool((labels != labels[:1]).any())
    classes, out = not reach.targets.is_floating_point() or one_hot(reach.targets), reach.output
    if seen.first.tables or (varied and classes and _shares(out)):
        return  # reported already; and the log of probabilities is bounded in the model, which free outputs are not
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)
    others = (tried(reach.score, size * noise + middle) for size, middle in ((1.0, 0.0), (0.2, 0.5), (10.0, 0.0)))
    if all(other is not None and float(other) == reach.now for other in others):  # the same for any outputs
        fix = "For one output of two classes use binary_cross_entropy_with_logits: a softmax over it is always 1."
        fix = fix if out[0].numel() == 1 else "Look at what it is made of: it does not depend on the outputs."
        yield Fault("loss", "loss", f"The loss is {reach.now:.3g} whatever the outputs are.", fix, certainty=0.96)
        return
    if varied and out.shape != reach.targets.shape and out.numel() == reach.targets.numel():
        shapes = [str(("n", *t.shape[1:])).replace("'", "") for t in (out, reach.targets)]
        message = f"{numbers}: the loss broadcasts outputs {shapes[0]} with targets {shapes[1]}."
        yield Fault("shapes", "loss", message, SAME_SHAPE, certainty=0.97)
    elif varied and not seen.reads_targets and not _other(seen, reach, reach.targets + 1):
        return  # the loss asks for no targets
    elif varied and not (seen.reads_targets or same):
        message = f"{numbers}: the loss compares each example's outputs with the targets of all."
        means = math.isclose(float(reach.score(out.mean(0, True).expand_as(out))), reach.now, rel_tol=1e-6)
        kind, fix = ("loss", "Compare the examples first, then take the mean.") if means else ("shapes", SAME_SHAPE)
        yield Fault(kind, "loss", message, fix, certainty=0.95)
    elif varied and _separated_by_far_outputs(reach):
        fix = "Look for a scale or a temperature in the loss that makes the outputs small."
        yield Fault("loss", "loss", f"{numbers}: only outputs of thousands change it.", fix, certainty=0.9)
    elif varied and not reach.last.name and classes and reach.flat < 1:
        fix = "The loss expects probabilities: end the model with a softmax, or use a loss of logits."
        yield Fault("output activation", "outputs", f"{numbers}: any large output will do.", fix, certainty=0.9)
    elif varied and idle is not None:
        message = f"{numbers}: it does not change with the outputs where the target is {idle:g}."
        fix = "Give such targets a term of their own, or those that the loss is made for: some take -1 and 1."
        ones, signs = torch.ones_like(out), not reach.values  # losses of pairs
        with suppress(Exception):  # a loss of signs is the same with all of them the other way; others refuse them
            signs = math.isclose(*(float(seen.loss_of(s * out, s * ones)) for s in (1, -1)), rel_tol=1e-6)
        yield Fault("loss", "loss", message, fix, certainty=0.9 if signs else 0.94)
        yield Fault("labels", "targets", message, fix, certainty=0.94 if signs else 0.9)
    elif varied and reach.flat < 1:
        size = float(reach.targets.double().square().mean().sqrt())
        message = f"{numbers}: the targets hardly tell the examples apart (root mean square {size:.2g})."
        kind, where = ("labels", "targets") if reach.least == reach.free else ("loss", "loss")
        kind = "target scale" if reach.values and size < 0.01 else kind
        yield Fault(kind, where, message, "See the targets: classes as they are, values standardized.", certainty=0.8)


def _idle(reach: Reach) -> float | None:
    """One of two targets, where the loss has no slope, whatever the outputs."""
    two, z = reach.targets.unique().tolist(), (0.9 * reach.output + 0.05).requires_grad_()
    with torch.enable_grad():
        value = reach.score(z)
    if not (reach.values or reach.targets.dim() == 1) or len(two) != 2 or not value.requires_grad:
        return None
    (slope,) = torch.autograd.grad(value, z)
    idle = [value for value in two if not bool(slope[reach.targets == value].any())]
    return idle[0] if len(idle) == 1 else None


def _other(seen: Evidence, reach: Reach, targets: Tensor) -> bool:
    """Whether the loss changes with these targets, or refuses them."""
    value = tried(lambda out: seen.loss_of(out, targets), reach.output)
    return value is None or float(value) != float(seen.loss_of(reach.output, reach.targets))


def _separated_by_far_outputs(reach: Reach) -> bool:
    """Whether a loss of classes separates right answers from wrong ones if they are large enough."""
    if reach.output.dim() != 2 or (right := reach.right(1e6)) is None:
        return False
    good, bad = float(reach.score(right)), float(reach.score(right.roll(1, 1)))
    return good < 0.1 * reach.constant < reach.constant < bad


def _shares(outputs: Tensor) -> bool:
    """Whether outputs are probabilities of classes, whatever made them so."""
    return outputs.dim() > 1 and float(outputs.min()) >= 0 and bool(((outputs.sum(1) - 1).abs() < 1e-4).all())


def loss_without_floor(reach: Reach) -> Iterator[Fault]:
    """A loss of classes that falls without bound or below zero: no logarithm of probabilities, or a wrong sign."""
    if (right := reach.right(5.0)) is None:
        return
    if _shares(reach.output) and -0.01 < float(reach.score((right / 5).clamp(1e-7))) < reach.now:
        return  # a loss that takes the logarithm of the model's own probabilities
    good, bad = float(reach.score(right)), float(reach.score(right.roll(1, 1)))
    far = not -0.5 < reach.through < math.inf  # else wrong answers must be nearly the best
    if good > bad and (far or bad - reach.through < 0.1 * (good - reach.through)):
        message = f"Right answers have a loss of {good:.3g}, wrong ones of {bad:.3g}: its sign is wrong."
        yield Fault("loss", "loss", message, "Minimize the negative of it.", certainty=0.95)
    elif far and not math.isclose(*(float(reach.score(reach.output + k)) for k in (0, 1)), rel_tol=1e-5):  # normalizes
        floor = f"to {reach.through:.3g}" if math.isfinite(reach.through) else "without bound"
        message = f"The loss of classes falls {floor}: it expects logarithms of probabilities."
        fix = "End the model with log_softmax, or use cross_entropy on logits."
        yield Fault("output activation", "outputs", message, fix, certainty=0.93)


def right_answers_cost_more(reach: Reach) -> Iterator[Fault]:
    """Values: the targets themselves, as outputs, have a higher loss than those of other examples."""
    exact = reach.targets.to(reach.output.dtype)
    if not reach.values or reach.last.name == "LogSoftmax" or float(exact.std()) == 0:
        return
    logits = not reach.last.name and bool(((exact == 0) | (exact == 1)).all())
    if logits and exact.dim() < 3:
        return  # a distance, say, that is 0 where the target is 1
    # logits and probabilities are no targets, but go the same way
    pairs = [(float(reach.score(z)), float(reach.score(z.roll(1, 0)))) for z in ([20 * exact - 10] * logits + [exact])]
    good, bad = pairs[0]
    if math.isfinite(good) and math.isfinite(bad) and good > bad + 1e-6 * abs(bad) and reach.now < good:
        if logits and pairs[1][0] < pairs[1][1]:
            message = "The loss is made for shares of 0 to 1, and nothing brings the outputs there."
            yield Fault("output activation", "outputs", message, PROBABILITIES, certainty=0.89)
        message = f"Right answers have a loss of {good:.3g}, those of other examples {bad:.3g}."
        yield Fault("loss", "loss", message, "Look at its sign, and at the order of its arguments.", certainty=0.88)


def shares_are_not_the_best(reach: Reach) -> Iterator[Fault]:
    """Targets that are shares, and a loss that other outputs bring lower than the targets themselves."""
    shares = reach.targets.double()
    if not reach.values or reach.last.name != "Softmax" or not one_hot(shares):
        return
    if float(shares.min()) < 0 or float(shares.amax(1).min()) > 0.999:
        return
    right, gain = float(reach.score(shares)), reach.constant - reach.through
    if math.isfinite(right) and gain > 0 and right - reach.through > GAP * gain:
        message = f"The targets as outputs have a loss of {right:.3g}, other outputs of {reach.through:.3g}."
        yield Fault("output activation", "outputs", message, "End with log_softmax, not softmax.", certainty=0.9)


def classes_read_elsewhere(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """Classes at several places: right answers cost as much as one answer for all, so they are not read as such."""
    costs = []
    for dim in (1, reach.output.dim() - 1) if reach.output.dim() > 2 else ():
        if (right := reach.right(10.0, dim)) is not None:
            if _of_one_place(seen, reach, dim):
                return  # the loss itself has another order: it turns the targets round, say
            costs.append(float(reach.score(SOFTMAXES.get(reach.last.name, lambda out, _: out)(right, dim))))
    if costs and min(costs) > max(0.5 * reach.constant, 1.01 * reach.through) > 0:
        message = f"Right answers cost {min(costs):.3g}, one for all {reach.constant:.3g}: read in another order."
        fix = "Move classes to the end before a reshape: outputs.movedim(1, -1).reshape(-1, classes)."
        fix = fix if reach.right(1.0) is not None else "Turn them, outputs.transpose(1, 2), and do not reshape them."
        yield Fault("shapes", "loss", message, fix, certainty=0.93)


def _of_one_place(seen: Evidence, reach: Reach, dim: int) -> bool:
    """Whether a target is compared with the outputs for all classes, along this dimension, of a place of its own."""
    last = (0, *[-1] * (reach.targets.dim() - 1))  # of the first example
    other, z = reach.targets.clone(), reach.output.clone().requires_grad_()
    other[last] = (other[last] + 1) % reach.output.shape[dim]
    with torch.enable_grad():
        one, two = (torch.autograd.grad(seen.loss_of(z, targets), z)[0] for targets in (reach.targets, other))
    return (one != two).any(dim).nonzero()[:, 0].tolist() == [0]


def targets_no_shares(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """A loss for probabilities that gets other targets than 0 to 1, so that it goes below zero."""
    if not (reach.values or reach.output[0].numel() == 1) or not reach.free < -0.01:
        return
    values = reach.targets.unique()
    low, top = float(values[0]), float(values[-1])
    if low == -1 and top == 1 and len(values) == 2:
        one, half, none = (float(reach.score(share * reach.output)) for share in (1.0, 0.5, 0.0))
        if abs(one - 2 * half + none) <= 1e-9 * abs(one - none):
            return  # a critic's loss, which is linear in the outputs, has no floor and needs none
        if reach.free < -1 and float(seen.loss_of(reach.output, (reach.targets.double() + 1) / 2)) > -1e-6:
            message = f"The targets are -1 and 1, and the loss, made for probabilities, falls to {reach.free:.3g}."
            yield Fault("labels", "targets", message, "Use (targets + 1) / 2.", certainty=0.95)
        return
    if low < 0 and reach.binary and seen.reads_targets:
        message = f"The targets lie between {low:.3g} and {top:.3g}; the binary cross-entropy is made for 0 to 1."
        yield Fault("loss", "loss", message, VALUES, certainty=0.97)
    if top <= 1.5 or low < 0:
        return
    if float(seen.loss_of(reach.best, reach.targets.double() / top)) < -1e-6 and math.isfinite(reach.through):
        return
    further = tried(reach.score, 2 * reach.best)
    if reach.last.name != "Sigmoid" and further is not None and float(further) > reach.free + 1e-6 * abs(reach.free):
        return  # it has a floor below zero at finite outputs, as the likelihood of counts has
    message = f"The targets go up to {top:.4g} and the loss, made for probabilities, down to {reach.free:.3g}."
    if len(values) == 2 and low > 0:
        yield Fault("labels", "targets", message, f"Use 0 and 1 instead of {low:g} and {top:g}.", certainty=0.96)
    if 2 < len(values) <= 50 and top == len(values) - 1 and reach.output[0].numel() == 1:
        fix = f"Give each of the {len(values)} classes an output, and use the cross-entropy."
        yield Fault("architecture", "outputs", message, fix, certainty=0.95)
        yield Fault("labels", "targets", message, fix, certainty=0.94)
        yield Fault("output activation", "outputs", message, fix, certainty=0.935)
        return  # no scale makes one output of several classes
    if len(values) > 50:
        yield Fault("loss", "loss", message, VALUES, certainty=0.925)
    yield Fault("target scale", "targets", message, f"Divide the targets by {top:.4g}.", certainty=0.93)


def no_slope_at_outputs(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """The loss has no slope where the outputs are, though it could fall: clamped, or made for probabilities."""
    inner = reach.last.name not in ("", "Relu")
    if reach.flat < (0.7 if inner else 0.2):  # some confident outputs are no fault
        return
    share = f"For {reach.flat:.0%} of the examples the loss has no slope at the outputs and could fall."
    inside = float(reach.best.min()) >= -0.01 and float(reach.best.max()) <= 1.01
    inside |= one_hot(reach.targets)
    outside = float(((reach.output < 0) | (reach.output > 1)).double().mean())
    bits = reach.flat <= outside and bool(((reach.targets == 0) | (reach.targets == 1)).all())
    ends = reach.output.abs().minimum((reach.output.abs() - 1).abs())  # how far outputs are from the ends of a range
    if reach.last.name in ("", "Tanh") and outside and (inside or bits):
        yield Fault("output activation", "outputs", share, PROBABILITIES, certainty=0.9 if inside else 0.84)
    elif reach.last.name in ("Sigmoid", "Softmax", "Tanh") and float((ends > 0.05).double().mean()) > 0.5:
        fix = "Take rounding, argmax and comparisons out of the loss: they have no slope."
        yield Fault("gradient flow", "loss", f"{share} The last activation is not saturated.", fix, certainty=0.87)
        yield Fault("loss", "loss", share, "Use the cross-entropy, or a smooth form of the score.", certainty=0.86)
    elif inner:
        fix = "Make what goes into the last activation smaller: scale the inputs, or the initial weights."
        entered = seen.first.entered
        kind = "input scale" if entered is not None and float(entered[2].abs().mean()) > 5 else "initialization"
        yield Fault(kind, "outputs", f"{share} The last activation is saturated.", fix, certainty=0.84)
    elif reach.last.name:
        yield Fault("output activation", "outputs", share, "Leave the ReLU out: shut, it has no slope.", certainty=0.88)
    else:
        fix = "Use a loss that has a slope everywhere: the Huber loss bounds the gradient, not the error."
        yield Fault("loss", "loss", share, fix, certainty=0.84)


def probabilities_wanted(reach: Reach) -> Iterator[Fault]:
    """A loss that cuts off what is below 0 or above 1, and outputs that can get there: nothing brings them back."""
    beyond = {"": (-0.5, 1.5), "Tanh": (-0.5,), "Relu": (1.5,)}.get(last := reach.last.name, ())
    lost = [value for value in beyond if reach.stands_still(value)]
    if lost and not reach.stands_still(0.5):
        signs = all(math.isclose(*(float(reach.score(0 * reach.output + s * z)) for z in (0.5, 5.0))) for s in (1, -1))
        if signs:
            yield Fault("loss", "loss", "The loss counts output signs alone.", "Use the squared error.", certainty=0.95)
        message = f"The loss has no slope {'below 0' if lost[0] < 0 else 'above 1'}, where outputs can come."
        yield Fault("output activation", "outputs", message, PROBABILITIES, certainty=0.9 if "Tanh" in last else 0.75)


def errors_cancel(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """The mean of errors with their signs: it falls without bound, and no example's own target counts."""
    if not reach.values or reach.free != -math.inf:
        return
    turned, moved = (float(seen.loss_of(reach.output, t)) for t in (reach.targets.roll(1, 0), reach.targets + 1))
    if math.isclose(turned, reach.now, rel_tol=1e-5) and not math.isclose(moved, reach.now, rel_tol=1e-5):
        message = "The loss falls without bound, and stays the same where examples exchange their targets."
        yield Fault("loss", "loss", message, "Take the squares of errors, or their absolute values.", certainty=0.97)


def loss_refuses(seen: Evidence) -> Iterator[Fault]:
    """A loss that fails on the outputs, and not on a sigmoid of them."""
    targets, out = seen.call.targets, seen.first.output
    if not seen.first.problem or out is None or not isinstance(targets, Tensor):
        return
    message = f"The loss fails on the outputs ({seen.first.problem.rstrip('.')}), and not on "
    value = tried(lambda z: seen.loss_of(z, targets), out.detach().sigmoid())
    if value is not None and bool(value.isfinite()):
        fix = "Use the loss that takes logits (BCEWithLogitsLoss), or end the model with a sigmoid."
        if tried(lambda z: seen.loss_of(z, targets), out.detach().abs() + 2) is not None:  # no probabilities
            fix = "What must be positive, a variance say, comes out of a softplus or an exponential."
        yield Fault("output activation", "outputs", f"{message}a sigmoid of them.", fix, certainty=CERTAIN)
    elif targets.is_floating_point() and tried(lambda z: seen.loss_of(z, targets.clamp(0, 1)), out) is not None:
        message += f"targets within 0 and 1: these go from {float(targets.min()):.3g} to {float(targets.max()):.3g}."
        yield Fault("loss", "loss", message, VALUES, certainty=0.97)
        yield Fault("labels", "targets", message, "Give classes as 0 and 1.", certainty=0.96)


def outputs_shut(seen: Evidence) -> Iterator[Fault]:
    """A ReLU at the end that shuts many outputs."""
    if (output := seen.first.output) is None:
        return
    at = behind(output, ("Softmax", "LogSoftmax", "View", "Squeeze", "Reshape"), 3)
    if not type(at).__name__.startswith("Relu"):
        return
    targets = None if seen.reach is None else seen.reach.targets
    if targets is not None and targets.is_floating_point() and at is output.grad_fn and not one_hot(targets):
        return  # counts and the like; what it hides shows in the floor
    if (shut := float((getattr(at, "_saved_result", output) == 0).double().mean())) >= 0.2:
        message = f"A ReLU is the last nonlinearity: {shut:.0%} of the outputs are 0 and get no gradient."
        yield Fault("output activation", "outputs", message, "Leave it out: scores may be negative.", certainty=0.8)


def softmax_inside(first: Pass) -> Iterator[Fault]:
    """Weights behind a softmax: it serves as a hidden activation."""
    for name in first.shares[:1]:
        message = f"'{name}' gets the shares of a softmax, which add up to 1."
        yield Fault("hidden activation", name, message, "Use ReLU in the hidden layers.", certainty=0.76)
