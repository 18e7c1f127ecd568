"""Faults of the data against the model: scales of inputs, classes, and the first loss against a constant answer's."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import CERTAIN, DRAW_SMALLER, Evidence, Fault
from epoch0.diagnosis.faults.reach import Reach, tried
from epoch0.tracing.call import mapped, parts

# Mean size of an input, and its mean over its deviation, from where the first layer with weights gets too much; and the
# size from where a program that learns something all the same would learn more without it.
LARGE, OFFSET, HUGE = 25.0, 15.0, 1000.0
FIRST = 4.0  # times the loss of one answer for all, and size of outputs, from which a first loss is too large


def input_scale(seen: Evidence) -> Iterator[Fault]:
    """Inputs that are too large for the first layer with weights, or far from zero beside how they differ."""
    if seen.first.entered is None or seen.first.normed:
        return
    name, module, given = seen.first.entered
    given, maps = given.double(), isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and given.dim() > 2
    # (channels, values) of what goes into it
    values = given.transpose(0, 1).flatten(1) if maps else given.flatten(0, -2).t() if given.dim() > 1 else given[None]
    if values.shape[1] < 4:
        return
    mean, deviation = values.mean(1), values.std(1)
    size, alive = float(values.abs().mean()), deviation > 1e-9
    offset = float((mean[alive].abs() / deviation[alive]).median()) if bool(alive.any()) else 0.0
    if size > LARGE:
        low, high = float(values.min()), float(values.max())
        message = f"{name or 'The model'} gets inputs between {low:.3g} and {high:.3g}, of mean size {size:.3g}."
        sure = 0.78 if size < HUGE else 0.9
    elif offset > OFFSET and float(mean.abs().median()) > 1:
        message = f"{name or 'The model'} gets inputs whose mean is {offset:.2g} times their deviation."
        sure = 0.65
    else:
        return
    yield Fault("input scale", "inputs", message, "Standardize each input over the training examples.", "step 0", sure)
    wanted = seen.targets
    sorts = wanted is not None and (not wanted.is_floating_point() or bool(((wanted == 0) | (wanted == 1)).all()))
    if sorts and size > LARGE and given.shape[-1] == 1 and bool((given == given.round()).all()):
        message = f"The inputs are whole numbers, one at a time, {len(given.unique())} different ones."
        fix = "If they are names, of words or classes, begin with an nn.Embedding, or give each as bits or one-hot."
        kinds = ("architecture", "data") if given.dim() > 2 else ("data", "architecture")
        yield from (Fault(kind, "inputs", message, fix, "step 0", 0.4 - 0.1 * i) for i, kind in enumerate(kinds))
    if len(spread := deviation[alive]) > 1 and float(spread.max()) > 1000 * float(spread.min()):
        message = f"The deviations of the inputs go from {float(spread.min()):.2g} to {float(spread.max()):.2g}."
        yield Fault("normalization", "inputs", message, "Begin with a batch norm.", "step 0", sure - 0.05)


def classes(seen: Evidence, targets: Tensor) -> Iterator[Fault]:
    """Targets of one value, or outside of the classes that the model has."""
    output = seen.first.output
    if len(targets) < 8 or not seen.reads_targets:
        return
    labels = targets if targets.is_floating_point() else targets[targets != -100]  # which losses leave out
    if len(labels) and bool((labels == labels[:1]).all()) and seen.data is not None:
        message = f"All {len(labels)} targets are the same."
        yield Fault("labels", "targets", message, "Look at how the targets are made.", certainty=CERTAIN)
        yield Fault("data", "targets", message, "See that examples with others are drawn, too.", certainty=0.9)
        return
    usual = float((labels == labels.mode().values).double().mean()) if labels.dim() == 1 and len(labels) else 0.0
    if len(labels) >= 100 and usual > 0.97:
        message = f"{usual:.1%} of {len(labels)} targets are {labels.mode().values.item():g}."
        yield Fault("labels", "targets", message, "See that this is meant; then weigh the others more.", certainty=0.5)
        yield Fault("data", "targets", message, "Let a sampler draw each class by one over its size.", certainty=0.45)
    if targets.is_floating_point() or targets.dim() != 1 or output is None or output.dim() < 2:
        return
    count, top = output.shape[1], int(targets.max())
    wanted = mapped(seen.call.targets, lambda t: torch.full_like(t, top))
    if top < count or tried(partial(seen.loss_of, seen.first.raw), wanted) is not None:
        return  # a loss of embeddings, say, takes it: they have no output a class
    message = f"Targets go up to {top}, and the model has {count} output{'s' * (count > 1)}."
    if count > 1:
        yield Fault("labels", "targets", message, f"Classes go from 0 to {count - 1}.", certainty=CERTAIN)
    else:
        fix = "Give each class an output, or use binary_cross_entropy_with_logits with targets of 0.0 and 1.0."
        yield Fault("architecture", "outputs", message, fix, certainty=CERTAIN)
        yield Fault("loss", "loss", message, fix, certainty=0.9)


def examples_alike(seen: Evidence, inputs: Tensor) -> Iterator[Fault]:
    """Inputs that are the same, all of them or most; classes that come one after the other."""
    targets = seen.targets
    if targets is not None and inputs.dim() and 1 < len(inputs) == len(targets):
        rows = inputs.reshape(len(inputs), -1)
        alike = (rows == rows[rows.sum(1).median(0).indices]).all(1)  # as most are, if most are the same
        share = float(alike.double().mean())
        many = share == 1 or (share > 0.5 and len(rows) >= 20 and rows.shape[1] >= 16)
        # rare events in a series that is mostly zero are few among the targets of the zeros, too
        spread = [t.to(torch.complex128).var(0).sum() for t in (targets[alike], targets)] if many else [0, 0]
        if 2 * spread[0] > spread[1] > 0:
            zero = share < 1 and not bool(rows[alike].any())
            message = f"{share:.0%} of {len(inputs)} inputs are the same{' and zero' * zero}, their targets are not."
            fix = f"Look at how the inputs are read{', and divide whole numbers as floats' * zero}."
            yield Fault("input scale" if zero else "data", "inputs", message, fix, certainty=CERTAIN)
    if not seen.ordered or targets is None or targets.is_floating_point() or targets.dim() != 1 or len(targets) < 8:
        return
    follow, chance = float((targets[1:] == targets[:-1]).double().mean()), _alike(targets)
    if follow > 0.8 > 1.6 * chance:
        message = f"The loader does not shuffle, and {follow:.0%} of the examples follow one of their own class."
        sure = 0.8 if len(targets) < 1000 else 0.9  # a trial on some of many examples sees shorter runs of a class
        yield Fault("data", "data", message, "Shuffle them: DataLoader(..., shuffle=True).", certainty=sure)


def _alike(classes: Tensor) -> float:
    """The chance that two examples are of one class."""
    return float(torch.bincount(classes.long() - classes.min()).double().square().sum() / len(classes) ** 2)


def ignored_class(seen: Evidence) -> Iterator[Fault]:
    """A class whose examples the loss does not look at, and that is not the padding; or whose weight is no help."""
    targets, output = seen.call.targets, seen.first.output
    if not isinstance(targets, Tensor) or targets.is_floating_point() or output is None or seen.first.loss is None:
        return
    dims = [d for d in (1, output.dim() - 1) if (*output.shape[:d], *output.shape[d + 1 :]) == targets.shape]
    if not dims or output.dim() < 2 or targets.dim() > 2 or seen.whole:  # of maps one is often void
        return
    equal = torch.full_like(output, 1 / output.shape[dims[0]], requires_grad=True)  # the model's own may be saturated
    with torch.enable_grad():
        pull = torch.autograd.grad(seen.loss_of(equal, targets), equal)[0].abs().amax(dims[0])
    pulled, counted = pull > 0, list[tuple[int, float, int]]()
    read = torch.ones_like(pulled)  # places that the loss looks at, whatever stands there
    for dim in range(pulled.dim()) if pulled.squeeze().dim() > 1 else ():
        read &= pulled.any([d for d in range(pulled.dim()) if d != dim], keepdim=True)
    for value in targets.unique().tolist():
        same = (targets == value) & read
        share = float(same.double().mean())
        if value >= 0 and bool(same.any()) and bool((pull[same] < 1.01 * pull[same].min()).all()):  # each alike
            counted.append((int(same.sum()), float(pull[same].mean()), value))
        if not 0 <= value < output.shape[dims[0]] or share < 0.05 or int(same.sum()) < 8:
            continue
        given, rows = seen.call.batch, (targets == value).reshape(len(targets), -1).long().diff()
        ends = bool(rows.numel() and ((rows >= 0).all() or (rows <= 0).all()))  # it stands at one end of each row alone
        padding = isinstance(given, Tensor) and given.shape == targets.shape and len(given[same].unique()) == 1
        if not (ends or padding) and not bool(pulled[same].any()) and bool(pulled[~same].any()):
            message = f"The loss has no slope for class {value}, {share:.0%} of the targets: ignored, or of weight 0."
            fix = "Give padding a number that is no class, such as -100, and each class a weight above 0."
            yield Fault("loss", "loss", message, fix, "step 0", 0.95)
    (few, weak, rare), (many, strong, usual) = min(counted, default=(0, 0, 0)), max(counted, default=(0, 0, 0))
    if many > 3 * few > 0 < weak and strong > 2 * weak:
        message = f"The loss weighs class {usual} ({many} targets) {strong / weak:.2g} times as class {rare} ({few})."
        yield Fault("loss", "loss", message, "Weigh classes by one over how often they occur.", certainty=0.9)


def label_order(seen: Evidence, inputs: Tensor, targets: Tensor) -> Iterator[Fault]:
    """Inputs that fall into groups whose neighbours yet have labels as drawn: rows shuffled apart from each other."""
    if seen.data is None or inputs.dim() < 2 or len(inputs) < 400 or len(inputs) != len(targets):
        return
    y, flat = targets[:1000], inputs[:1000].flatten(1).double()
    if y.is_floating_point() and y.dim() == 2 and bool((y.sum(1) == 1).all()) and y.shape[1] > 2:
        y = y.argmax(1)
    if y.is_floating_point() or y.dim() != 1 or flat.shape[1] < 100:
        return
    far = torch.cdist(flat, flat).fill_diagonal_(float("inf"))
    near, index = far.min(1)
    close = near < 0.6 * float(far[far.isfinite()].median())  # much closer than examples are
    close &= torch.bincount(y.long() - y.min())[y.long() - y.min()] > 1  # a number of its own for each is no class
    count, chance = int(close.sum()), _alike(y)
    if count < 150:
        return
    hits = float((y[index] == y)[close].double().mean())
    if chance < 0.5 and hits < chance + 2.5 * (chance * (1 - chance) / count) ** 0.5:
        message = f"{hits:.0%} of {count} nearest neighbours have one class; drawn labels would in {chance:.0%}."
        yield Fault("labels", "targets", message, "See that inputs and targets are in the same order.", certainty=0.75)


def first_loss(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """A first loss far above that of one answer for all: the outputs are too large from the start."""
    size = float(reach.output.square().mean().sqrt())
    usual = float(reach.targets.double().square().mean().sqrt()) if reach.values else 1.0
    if reach.sums or (reach.targets.is_floating_point() and not reach.values) or seen.first.size_in > LARGE:
        return  # or the scale of the inputs says it
    if size < FIRST * usual or not (reach.constant > 0.01 and reach.now > FIRST * reach.constant):
        return
    message = f"The first loss is {reach.now:.3g}, at outputs of size {size:.3g}; one answer has {reach.constant:.3g}."
    yield Fault("initialization", "model", message, DRAW_SMALLER, certainty=0.75)


def label_inside(seen: Evidence, inputs: Tensor, targets: Tensor) -> Iterator[Fault]:
    """One of several input columns is the target itself; among bits alone that is the task."""
    if seen.data is None or inputs.dim() != 2 or inputs.shape[1] < 3 or not 20 <= len(inputs) == len(targets):
        return
    wanted = targets.reshape(len(targets), -1)
    same = (inputs == wanted.to(inputs)).all(0).nonzero().flatten().tolist() if wanted.shape[1] == 1 else []
    if same and len(wanted.unique()) > 1 and len(inputs.unique()) > 2:
        message = f"Column {same[0]} of the inputs is the target."
        yield Fault("data", "inputs", message, "Leave it out: it is not there when the model is used.", "step 0", 0.9)


def targets_inside(seen: Evidence, quiet: tuple[Tensor, Tensor]) -> Iterator[Fault]:
    """One of several inputs, of tokens, is the targets themselves: a decoder that sees what it must predict."""
    targets, given = seen.call.targets, parts(seen.call.batch)
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dim() < 2 or len(given) < 2:
        return
    if len(targets.unique()) < 3 or not any(torch.equal(item, targets) for _, item in given):
        return

    def moves(dim: int) -> bool:
        (other := targets.clone()).select(dim, -1).copy_(targets.select(dim, 0))
        turned = mapped(seen.call.batch, lambda t: other if torch.equal(t, targets) else t)
        return not torch.equal(quiet[0].select(dim, -1), seen.quietly(seen.model, turned).select(dim, -1))

    with suppress(Exception):  # outputs may have no such places
        if not (moves(0) and moves(1)):
            return  # the output for the last of some tokens does not change with it
    fix = "Move it on by one place: a decoder gets the tokens before the one that it must predict."
    yield Fault("data", "inputs", "One of the inputs is the targets, token by token.", fix, certainty=0.9)
