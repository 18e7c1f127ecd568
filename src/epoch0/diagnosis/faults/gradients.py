"""Faults of the gradient's path: NaN and infinity, gradients cut off, equal units, examples that mix."""

import math
from collections.abc import Iterator
from ctypes import c_int64
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import CERTAIN, DRAW_SMALLER, After, Evidence, Fault, Pass, affine, padding_after
from epoch0.diagnosis.faults.reach import SOFTMAXES, Reach, made
from epoch0.tracing.guard import unchanged

UNCUT = "Take out .data, .detach(), .item(), new tensors, numpy and no_grad between inputs and loss."
CUT = "Look for a rounding, argmax, .detach() or a dead activation behind it."
EXPLODES = 1e3  # by so much an exponential makes numbers larger; a ReLU by nothing, a square by their size
STEPS = ("Sign", "Round", "Floor", "Ceil", "Trunc")  # functions that have no slope
MIXES = 0.002  # other examples move an output by this share of its size; a statistic of the batch moves it less
FLAT = 0.9  # from this share of a hidden layer's values on its activation is saturated


def first_not_finite(seen: Evidence, first: Pass) -> Iterator[Fault]:
    """The first module that returns NaN or infinity; else the loss, else a gradient."""
    if (name := next((name for name, _, finite in first.ran if not finite), None)) is not None:
        fix = "Look for a logarithm, root or division at 0 there, or weights that are too large."
        message = f"'{name}' is the first module that returns NaN or infinity." if name else ""
        message = message or "The model returns NaN or infinity, and none of its parts does."
        growth, grows = first.growth
        if growth > EXPLODES:
            far = f"{growth:.2g} times larger" if math.isfinite(growth) else "infinite"
            message += f" '{grows}', which has no weights, makes its inputs {far}."
            yield Fault("hidden activation", grows, message, "Use ReLU in the hidden layers.", certainty=0.96)
        if not name and len(first.ran) > 1:  # it is made of what the last of them returned
            end = "End with a softplus where a logarithm or root comes after."
            yield Fault("output activation", "outputs", message, end, certainty=0.955)
        yield Fault("architecture", name or "outputs", message, fix, certainty=0.95)
    elif first.loss is not None and not bool(first.loss.isfinite()):
        message = f"The loss is {float(first.loss.detach()):.3g} though all outputs are finite."
        fix = "Bound what goes into its logarithm, or use a loss of logits; see that the outputs are in its range."
        yield Fault("loss", "loss", message, fix, certainty=0.95)
        out, classes = first.output, seen.call.targets
        if out is not None and isinstance(classes, Tensor) and classes.dim() == 1 and not classes.is_floating_point():
            rows = {int(c): classes == c for c in classes.unique()}
            wrong = [c for c, at in rows.items() if not bool(seen.loss_of(out[at], classes[at]).isfinite())]
            if len(wrong) == 1 < len(rows) and wrong[0] in (min(rows), max(rows)):
                message = f"The loss is no number for targets of {wrong[0]}, and finite for other classes."
                yield Fault("labels", "targets", message, "Number the classes from 0.", certainty=0.97)
        low, high = (0.0, 1.0) if out is None else (float(v) for v in out.detach().double().aminmax())
        shares = isinstance(classes, Tensor) and 0 <= float(classes.min()) <= float(classes.max()) <= 1
        values = isinstance(classes, Tensor) and classes.is_floating_point() and not shares
        if low < 0 or (high > 1 and not values):
            message = f"The loss is no number for outputs between {low:.2g} and {high:.2g}."
            fix = "End with a softplus or an exponential." if values else "End with a sigmoid or a softmax."
            if not values or (out is not None and bool(seen.loss_of(F.softplus(out), classes).isfinite())):
                yield Fault("output activation", "outputs", message, fix, certainty=0.94)
    elif bad := [n for n, g in first.gradients.items() if g is not None and not bool(g.isfinite().all())]:
        message = f"The gradient of {bad[0]} is not finite though the loss is."
        fix, ends = "Look for a root or norm at 0, or a masked NaN.", (first.loss, first.output)
        gradient = torch.autograd.grad(*ends, retain_graph=True, allow_unused=True)[0]  # type: ignore[arg-type]
        early = gradient is not None and not bool(gradient.isfinite().all())  # before it has come to the model
        yield Fault("loss" if early else "gradient flow", "loss" if early else bad[0], message, fix, certainty=0.9)


def perfect_answer(seen: Evidence, reach: Reach) -> Iterator[Fault]:
    """A loss that is NaN or infinite once the last activation is saturated in the single precision of the model."""
    if reach.last.name not in ("Sigmoid", "Softmax") or (out := seen.first.output) is None or len(out) < 4:
        return  # of so few examples no trial shows whether it gets there
    inner = torch.Size((len(reach.targets), *reach.last.shape[1:]))
    strong = torch.where(torch.arange(inner.numel()).reshape(inner) % 2 == 0, 200.0, -200.0).to(out)
    ends = (reach.last.apply(sign * strong).reshape(reach.output.shape) for sign in (1, -1))
    if not all(bool(seen.loss_of(end, reach.targets).isfinite()) for end in ends):
        message = "The loss is no number once an output is exactly 0 or 1."
        yield Fault("loss", "loss", message, "Use a loss of logits, or clamp the probabilities.", certainty=0.55)


def cut_off(seen: Evidence, first: Pass) -> Iterator[Fault]:
    """Parameters that ran and get no gradient, or exactly none before and after the steps."""
    if first.loss is None or not bool(first.loss.isfinite()):
        return
    if not first.loss.requires_grad:
        if any(p.requires_grad for p in seen.model.parameters()):
            message = "The loss does not depend on any parameter: the graph was cut on the way."
            yield Fault("gradient flow", "outputs", message, UNCUT, certainty=CERTAIN)
        return
    if first.gradients and all(g is None for g in first.gradients.values()):
        message = "The loss has a gradient, and no parameter of the model: it was cut on the way and begun anew."
        yield Fault("gradient flow", "loss", message, UNCUT, certainty=CERTAIN)
        return
    if seen.reach is not None and seen.reach.flat > 0.9:
        return  # the loss itself has no slope
    late = first.gradients | (seen.after.late.gradients if seen.after is not None else {})
    ran, own = {name for name, _, _ in first.ran}, dict(seen.model.named_parameters())
    matrices = [n for n in first.gradients if n.rpartition(".")[0] in ran and own[n].dim() > 1 and own[n].numel()]
    stuck = [n for n in matrices if not any(g is not None and bool(g.any()) for g in (first.gradients[n], late[n]))]
    begun = {n.replace("weight_ih", "weight_hh") for n in matrices if n not in stuck and "reverse" not in n}
    unused = [n for n in stuck if "weight_hh" in n and n in begun]
    if unused:  # the state before the first step is zero
        message = f"The recurrent layer reads sequences of one step, so {unused[0]} is never used."
        fix = "Give it the steps of a sequence along one dimension: (batch, steps, features) with batch_first=True."
        name = unused[0].rpartition(".")[0]
        if (steps := first.steps.get(name, 1)) > 1:
            message = f"Of {steps} steps only what '{name}' returns at the first is used, before it reads the others."
            fix = "Use the last step, output[:, -1] with batch_first=True, or the state that it returns."
            yield Fault("architecture", name, message, fix, certainty=0.95)
            return
        often = sum(ran == name for ran, _, _ in first.ran) > 1  # a loop gives it one step after another
        yield Fault("shapes", name, message, fix, certainty=0.78 if often else 0.8)
        yield Fault("architecture", name, message, "Pass its state on from each step to the next.", certainty=0.79)
        return
    if not stuck or 2 * len(stuck) < len(matrices):
        trained = {id(p) for item in seen.optimizers for group in item.param_groups for p in group["params"]}
        for name in [n for n in stuck if late[n] is None and id(own[n]) in trained and _matters(seen, own[n])][:1]:
            message = f"The loss depends on {name}, which the optimizer holds, and it gets no gradient."
            yield Fault("gradient flow", name, message, UNCUT, certainty=0.87)
        return
    kind, fix = "gradient flow", CUT
    zero = [n for n in stuck if not bool(own[n].any())]
    gone = next((n for n, m, _ in first.ran if isinstance(m, nn.modules.dropout._DropoutNd) and m.p >= 1), None)
    if gone is not None:
        kind, fix = "regularization", f"Dropout '{gone}' leaves nothing: p is the share that is dropped, not kept."
    elif first.sunk and not first.open:
        kind, fix = "initialization", f"Begin the biases of {first.sunk[0]} at 0: they shut all of its units."
        if (bias := f"{first.sunk[0]}.bias") in [*own][:-2] and (units := len(own[bias])) < 5:  # which are often shut
            kind, fix = "architecture", f"Give {first.sunk[0]} more than {units} units: all of them are shut."
    elif seen.reach is not None and seen.reach.last.name and not bool(seen.reach.output.any()):
        kind, fix = "output activation", "Leave the activation at the end out: it is shut for all examples."
    elif zero and (seen.after is not None or zero == stuck):
        kind, fix = "initialization", f"Draw the weights of {zero[0]}: at zero no gradient passes them."
    elif seen.after is None and any(first.gradients[n] is not None for n in stuck):
        return  # a zero start would open after a step
    message = f"{len(stuck)} of {len(matrices)} weight matrices get no gradient at all, such as {stuck[0]}."
    end = seen.reach is not None and seen.reach.last.name == "Softmax"  # which is looked at on its own
    for at in made(first.loss):
        name = type(at).__name__.partition("Backward")[0]
        if name in SOFTMAXES and not end and at._saved_result.shape[c_int64(at._saved_dim).value] == 1:
            shape = tuple(at._saved_result.shape)
            fix = f"Take the softmax along another dimension: in {shape} this one has a single entry, whose share is 1."
            yield Fault("shapes", "model", message, fix, certainty=0.955)
            break
        if name in STEPS:
            fix = f"Use tanh or ReLU in the place of {name.lower()}, which has no slope, or leave it out."
            yield Fault("hidden activation", "model", message, fix, certainty=0.89)
            break
    if kind == "gradient flow":
        yield Fault("hidden activation", "model", message, "If a comparison stops it: ReLU has a slope.", certainty=0.6)
    yield Fault(kind, stuck[0], message, fix, certainty=0.9)


def _matters(seen: Evidence, weight: Tensor) -> bool:
    """Whether the loss changes with a weight."""
    with unchanged(seen.model), torch.no_grad():
        seen.passes += 2
        before = seen.loss_in(seen.call, seen.call.raw(seen.model.eval()))
        weight.mul_(1.5)
        return not torch.equal(before, seen.loss_in(seen.call, seen.call.raw()))


def norm_of_one(seen: Evidence, first: Pass) -> Iterator[Fault]:
    """A norm over one number, which leaves nothing of it, or over two, which leaves their order."""
    pairs = list(pairwise([("", nn.Identity()), *((n, m) for n, m, _ in first.ran)]))
    if seen.batch_size == 2 and any(type(a) is nn.Linear and type(b) is nn.BatchNorm1d for (_, a), (_, b) in pairs):
        message = "Of the two examples of a batch, each number that is normalized becomes -1 and 1."
        yield Fault("batch size", "data", message, "Take batches of 16 or more.", certainty=0.9)
    layers = [n for n, m, _ in first.ran if isinstance(m, nn.LayerNorm) and math.prod(m.normalized_shape) == 1]
    for name in (layers + first.alone)[:1]:
        message = f"'{name}' normalizes over one number, which it makes a constant."
        fix = "Leave it out, normalize over more numbers, or give each place more features (an embedding first)."
        yield Fault("normalization", name, message, fix, certainty=CERTAIN - 0.005)
        if name != first.last and name not in first.alone:
            yield Fault("architecture", name, message, fix, certainty=CERTAIN)


def one_linear_map(seen: Evidence) -> Iterator[Fault]:
    """Linear layers with nothing between them."""
    layers = [(n, m) for n, m, _ in seen.first.ran if isinstance(m, nn.Linear)]
    leaves = [m for _, m, _ in seen.first.ran if not list(m.children())]
    plain = (nn.Linear, nn.Flatten, nn.Identity, nn.modules.dropout._DropoutNd)
    if len(layers) < 2 or any(not isinstance(m, plain) for m in leaves[:-1]):
        return
    if min(m.out_features for _, m in layers[:-1]) < min(layers[0][1].in_features, layers[-1][1].out_features):
        return  # of lower rank on purpose
    seen.passes += 2  # four times forward
    if affine(seen.call, seen.model, layers[-1][0]):
        message = f"Nothing lies between the {len(layers)} layers, so together they are a single linear map."
        fix = "Put a nonlinearity such as ReLU between them."
        yield Fault("hidden activation", "model", message, fix, certainty=0.9 if len(layers) > 2 else 0.75)


def reads_padding(seen: Evidence, quiet: tuple[Tensor, Tensor]) -> Iterator[Fault]:
    """Recurrent layers whose outputs hardly know the words of a text with much padding after it."""
    tokens, after = seen.call.batch, padding_after(seen.call.batch, seen.model)
    if after is None:
        return
    words = torch.arange(tokens.shape[1]) < tokens.shape[1] - torch.maximum(after, after.roll(1))[:, None]
    other = torch.where(words.to(tokens.device), tokens.roll(1, 0), tokens)
    apart = (seen.quietly(seen.model, other) - quiet[0]).double().flatten(1).norm(dim=1)
    long = after > after.double().mean()
    much, little = float(apart[~long].mean()), float(apart[long].mean())
    least = 1e-6 * float(quiet[0].double().flatten(1).norm(dim=1).mean())
    if little < 0.3 * much or much < least:
        message = f"Words of texts with much padding after them (more than {float(after.double().mean()):.0f} places) "
        message += f"change the outputs by {little:.1g}, of others by {much:.1g}: the padding is read last."
        fix = "Pack the sequences (pack_padded_sequence), or pad in front."
        yield Fault("data", "inputs", message, fix, certainty=0.9 if little < max(0.01 * much, least) else 0.7)


def twins(seen: Evidence, after: After) -> Iterator[Fault]:
    """Units that start equal and are equal after the steps."""
    layers = [(n, m) for n, m in after.model.named_modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d)]
    drawn = [(n, m.weight) for n, m in layers[:-1] if len(m.weight) > 1 and m.weight.requires_grad]
    zero = [n for n, _ in layers if not bool(seen.model.get_submodule(n).weight.any())]  # type: ignore[operator]
    if len(zero) == len(layers) > 1:
        message = f"All {len(zero)} weight matrices are zero: nothing of the inputs comes through."
        yield Fault("initialization", zero[0], message, "Draw the initial weights at random.", certainty=0.95)
        return
    found = [n for n, w in drawn if _alike(seen.model.get_submodule(n).weight) and _alike(w)]  # type: ignore[arg-type]
    if found and 2 * len(found) >= len(layers) - 1:
        message = f"After five steps more than half of the units of {found[0]} still have the same weights."
        fix = "Draw the initial weights at random: equal units stay equal."
        yield Fault("initialization", found[0], message, fix, certainty=0.96)


def _alike(weight: Tensor) -> bool:
    flat = weight.detach().double().flatten(1)
    return float(((flat - flat[:1]).abs().amax(1) <= 1e-4 * float(flat.abs().max())).double().mean()) > 0.5


def saturated(first: Pass) -> Iterator[Fault]:
    """Sigmoids and tanhs inside the network whose values lie at the ends of their range."""
    for name in [name for name, share in first.flat.items() if share > FLAT and name != first.last][:1]:
        message = f"{first.flat[name]:.0%} of what '{name}' returns is at the ends of its range, where it has no slope."
        kind, where, fix = "initialization", name, DRAW_SMALLER
        if first.size_in > 3:
            kind, where, fix = "input scale", "inputs", "Standardize each input over the training examples."
        yield Fault(kind, where, message, fix, certainty=0.7)


def examples_mix(seen: Evidence) -> Iterator[Fault]:
    """Without noise, outputs that change with the inputs of other examples."""
    norms = [m for m in seen.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    always = any(norm.running_mean is None for norm in norms)
    if seen.mixed > MIXES and not always:
        message = f"Other examples' inputs change an example's outputs by up to {seen.mixed:.2g} of their size."
        fix = "Look for batch_first, a view instead of a transpose, or a softmax or norm over the batch."
        yield Fault("shapes", "outputs", message, fix, certainty=0.93)
        yield Fault("architecture", "outputs", message, fix, certainty=0.86)


def others_targets(seen: Evidence, quiet: tuple[Tensor, Tensor]) -> Iterator[Fault]:
    """A loss of each row of outputs by itself that compares those of an example with the targets of others."""
    out, targets, loss, ends = seen.first.output, seen.call.targets, seen.first.loss, dict[int, int]()
    if out is None or quiet[0].shape != out.shape or seen.whole or seen.step or not isinstance(targets, Tensor):
        return
    if loss is None or len(targets) != seen.call.examples or out.grad_fn not in made(loss):
        return
    for end in (0, -1):
        other = (targets != targets[end]).reshape(len(targets), -1).any(1).nonzero()
        ends |= {end: int(other[0])} if len(other) else {}
    wanted, moved = targets.clone(), out.detach().clone()
    wanted[[*ends]], moved[0] = targets[[*ends.values()]], moved[-1]
    with torch.enable_grad():
        given = [(z.detach().requires_grad_(), t) for z, t in ((out, targets), (out, wanted), (moved, targets))]
        slope, other, moved = (torch.autograd.grad(seen.loss_of(z, t), z)[0] for z, t in given)
    own, pulled, moves = (_rows_apart(*pair) for pair in (quiet, (slope, other), (slope, moved)))
    right, many = int((pulled & own).sum()), int(pulled.sum())
    if int(own.sum()) > 1 and not bool(moves[1:].any()) and max(1, 2 * right) < many < 0.5 * len(pulled):
        message = f"The targets of two examples pull {many} rows of outputs, of which {right} are theirs."
        fix = "Bring both into one order before they are flattened: transpose one, or repeat_interleave the targets."
        yield Fault("shapes", "loss", message, fix, certainty=0.94)
        yield Fault("labels", "targets", message, fix, certainty=0.93)


def _rows_apart(*pair: Tensor) -> Tensor:
    """Which rows differ by more than the factor of most of them, such as a mean over other numbers."""
    one, other = (t.detach().double().reshape(len(t), -1) for t in pair)
    ratio = (one.norm(dim=1) / other.norm(dim=1)).nanmedian()
    return torch.gt((one - ratio * other).abs().amax(1), 1e-6 * one.abs().max())


def recut(first: Pass) -> Iterator[Fault]:
    """A view that exchanges the sizes of dimensions: it cuts the numbers anew, in the order in which they lie."""
    for old, new in first.recut[:1]:
        message = f"A view makes {new} of {old}: it cuts the numbers anew, and exchanges no dimensions."
        yield Fault("shapes", "model", message, "Use permute or transpose in its place.", certainty=0.9)


def inputs_ignored(seen: Evidence, after: After, quiet: tuple[Tensor, Tensor]) -> Iterator[Fault]:
    """Without noise, outputs that do not change with their own input, also after the steps."""
    if after.quiet is None or not all(bool(o.isfinite().all()) for o in after.quiet):
        return
    if padding_after(seen.call.batch, seen.model) is not None:
        return  # it may have forgotten them
    tokens = isinstance(seen.call.batch, Tensor) and not seen.call.batch.is_floating_point()
    least = 1e-6 if tokens else 0.0  # a sum over as many other tokens may be rounded otherwise
    for first, second in (quiet, after.quiet):
        apart = (first - second).double()[[0, -1]].abs().max()
        if len(first) != seen.call.examples or float(apart) > least * float(first.double().abs().max()):
            return
    message = "The outputs do not change with the inputs, at the start and after five steps."
    fix = "Look for units that are all shut, an input that is not passed on, or a zero in between."
    trained = {id(p) for item in seen.optimizers for group in item.param_groups for p in group["params"]}
    for name, p in seen.model.named_parameters():
        if p.dim() > 1 and bool((p == p.flatten()[0]).all()) and not (p.requires_grad and id(p) in trained):
            if p.requires_grad and seen.optimizers:
                return  # that no optimizer holds it is said
            message = f"'{name}' is {float(p.flatten()[0]):.3g} everywhere and is not trained."
            yield Fault("initialization", name, message, "Load its weights, or train it.", certainty=CERTAIN)
            yield Fault("gradient flow", name, message, "Train it, or load its weights.", certainty=0.98)
            return
    ran = {name for name, _, _ in seen.first.ran}
    idle = {name.rpartition(".")[0] for name, _ in seen.model.named_parameters()} - ran
    for name in sorted(n for n in idle if "self_attn" not in n)[:1]:
        unused = f"The outputs do not change with the inputs, and '{name}' is never called."
        yield Fault("gradient flow", name, unused, "See that what it makes is passed on.", certainty=0.6)
    if seen.first.single and seen.inputs is not None:
        alike = f"'{seen.first.single[0]}' gets one number for all, of inputs up to {float(seen.inputs.max()):.3g}."
        yield Fault("data", "inputs", alike, "Give it whole numbers: do not scale names of words.", certainty=0.97)
    if any(p.dim() > 1 and not bool(p.any()) for p in seen.model.parameters()):
        yield Fault("initialization", "model", message, "Draw the weights that are all zero.", certainty=0.975)
    if tokens and seen.first.open:  # nothing is shut, and yet the words do not matter
        fix = "Look for a mask that hides more than padding, weights that are all zero, what is not passed on."
        yield Fault("data", "inputs", message, fix, certainty=0.6)
    yield Fault("architecture", "outputs", message, fix, certainty=0.97 if tokens and seen.first.open else 0.35)


def dropped_always(seen: Evidence, quiet: tuple[Tensor, Tensor]) -> Iterator[Fault]:
    """Dropout that evaluation mode does not turn off."""
    if seen.dropped and max(seen.dropped) >= 0.5:
        message = f"In evaluation mode dropout still leaves out {max(seen.dropped):.0%}."
        fix = "Use nn.Dropout, or F.dropout(x, p, training=self.training)."
        yield Fault("regularization", "model", message, fix, certainty=0.9)


def future_seen(seen: Evidence) -> Iterator[Fault]:
    """Outputs that see the token they must predict: later ones matter, or targets are the inputs, not moved on."""
    tokens, targets = seen.call.batch, seen.call.targets
    if not isinstance(tokens, Tensor) or not isinstance(targets, Tensor) or tokens.is_floating_point():
        return
    if tokens.dim() != 2 or targets.shape != tokens.shape or (length := tokens.shape[1]) < 4:
        return
    moved = [k for k in range(4) if float((targets[:, : length - k] == tokens[:, k:]).double().mean()) >= 0.9]
    if moved and moved[0] > 1:
        fix = "Move them on once: look for a shift in the data and another one in the model or the loss."
        yield Fault("labels", "targets", f"Targets are the tokens {moved[0]} places on.", fix, certainty=0.9)
    if not {0, 1}.intersection(moved):
        return
    half = length // 2
    before, later = tokens[:, :half], tokens[:, half:]
    new = later.roll(1, 1) if torch.equal(later.roll(1, 0), later) else later.roll(1, 0)
    one, two = (seen.quietly(seen.model, ids) for ids in (tokens, torch.cat([before, new], 1)))
    if (axis := next((a for a in (1, 2) if one.dim() > a and one.shape[a] == length), None)) is None:
        return
    apart, least = (one - two).double().abs(), 1e-4 * float(one.abs().max())
    ahead, own = (float(apart.narrow(axis, start, count).max()) > least for start, count in ((0, half), (half, 1)))
    if moved[0] == 0:
        out, others = one.detach().requires_grad_(), torch.cat([targets[:, 1:2], targets[:, 1:]], 1)
        at = torch.autograd.grad(seen.loss_of(out, targets) - seen.loss_of(out, others), out)[0]  # where the first acts
        if own and not ahead and at.narrow(axis, 0, 1).any() and not at.narrow(axis, 1, length - 1).any():
            message = "Targets are the inputs themselves: each output sees the token that it is to say, and copies it."
            yield Fault("labels", "targets", message, "Move them: model(x[:, :-1]) against x[:, 1:].", certainty=0.95)
    elif ahead:
        message = f"Outputs at the first {half} places change with tokens after them, which are their targets."
        fix = "Give the attention a causal mask; a network in both directions cannot predict the next token."
        yield Fault("architecture", "outputs", message, fix, certainty=0.95)
