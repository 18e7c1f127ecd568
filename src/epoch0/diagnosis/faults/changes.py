"""Single changes of a program, each made on a copy: the change that repairs it names the fault.

A new one is one entry of ``CHANGES``; its function returns "" where there is nothing to change.
"""

import copy
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import NORMS, Evidence, affine, padding_after, rate_of
from epoch0.diagnosis.faults.program import ADAM, USUAL, UserProgram
from epoch0.diagnosis.faults.reach import one_hot, reach
from epoch0.initialization.initialize import initialize
from epoch0.tracing.call import mapped
from epoch0.tracing.guard import rebound
from epoch0.tracing.operations import Calls

_ENDS = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid, nn.Tanh, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Hardtanh)
# what a module is called in the graph, where ReLU is Relu
ENDS: dict[type[nn.Module], str] = {one: one.__name__.replace("LU", "lu") for one in (*_ENDS, nn.ReLU6, nn.Hardsigmoid)}
ENDS[nn.Softmax2d] = "Softmax"
FLAT = (nn.Sigmoid, nn.Tanh, nn.Softmax, nn.Hardtanh, nn.Hardsigmoid, nn.Softsign, nn.ReLU6)
MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d)
USUAL_LOOP = "Write the usual loop: zero_grad, loss.backward(), optimizer.step(), one optimizer for all steps."
WIDE = 32  # units of a narrow hidden layer once it is made wide


@dataclass(frozen=True)
class Change:
    """One thing to try."""

    name: str
    kind: str  # of the fault that it would mend
    where: str
    make: Callable[[UserProgram, Evidence], str]  # changes the program and returns what its user would write


def ending(model: nn.Module, seen: Evidence) -> tuple[str, str]:
    """The last activation of a model: its name, and its module path where it is a module."""
    if seen.first.ran and (kind := ENDS.get(type(model.get_submodule(seen.first.last)))) is not None:
        return kind, seen.first.last
    return ("" if seen.reach is None else seen.reach.last.name), ""


def _end_with(program: UserProgram, seen: Evidence, new: str) -> str:
    model, out = program.call.model, seen.first.output
    old, path = ending(model, seen)
    if out is None or old == new or (old and not path):
        return ""
    dim = -1 if isinstance(y := seen.call.targets, Tensor) and y.shape == out.shape[:-1] else 1  # where its classes are
    if new.endswith("oftmax") and (out.dim() < 2 or out.shape[dim] < 2):
        return ""
    with torch.no_grad():
        if new == "Softmax" and float(program.loss(out.softmax(dim), y)) < 0:
            return ""  # the loss takes logarithms
        if new == "LogSoftmax":
            one, other = (float(program.loss(o, y)) for o in (out, out.log_softmax(dim)))
            if abs(one - other) <= 1e-4 * abs(one):
                return ""  # the loss takes logits: the same as nothing at the end
    end = getattr(nn, new)(*[dim] * new.endswith("oftmax")) if new else nn.Identity()
    if path:
        model.set_submodule(path, end)
    else:
        plain = program.loss
        program.loss = lambda outputs, targets: plain(end(outputs), targets)
    return f"End with {new}{f' instead of {old}' if old else ''}." if new else f"Leave the {old} at the end out."


def _fitting_loss(program: UserProgram, seen: Evidence) -> str:
    """The usual loss for such targets, of logits where the outputs are none; nothing where it is the one there is."""
    old, _ = ending(program.call.model, seen)
    targets, out, plain = program.call.targets, seen.first.output, program.loss
    if out is None or out.dim() < 2 or seen.through:
        return ""
    wide, floats, same = out.shape[1] > 1, targets.is_floating_point(), targets.shape[1:] == out.shape[1:]
    hot = floats and same and one_hot(targets) and bool((targets >= 0).all())
    if wide and (hot or (not floats and targets.dim() == out.dim() - 1)):
        program.loss, fix = lambda o, t: F.cross_entropy(o, t), "Use the cross-entropy of logits."
        if old:
            fix = f"Use the cross-entropy, without the {old} where it takes logits."
        if old in ("Softmax", "Sigmoid"):
            program.loss = lambda o, t: F.cross_entropy(o.clamp_min(torch.finfo(o.dtype).tiny).log(), t)
    elif same and bool(((targets == 0) | (targets == 1)).all()):
        usual = F.binary_cross_entropy if old == "Sigmoid" else F.binary_cross_entropy_with_logits
        program.loss = lambda o, t: usual(o, t.to(o.dtype))
        fix = "Use the binary cross-entropy" + ("." if old == "Sigmoid" else " with logits.")
    elif floats and targets.numel() == out.numel() // len(out) * len(targets):
        program.loss, fix = lambda o, t: F.huber_loss(o, t.reshape(o.shape)), "Use the Huber loss."
    else:
        return ""
    with torch.no_grad():
        one, two = (float(loss(out, seen.call.targets)) for loss in (plain, program.loss))
    return "" if abs(one - two) <= 1e-5 * abs(one) else fix


def _scaled(program: UserProgram, seen: Evidence, mean: bool) -> str:
    found, plain = seen.reach, program.loss
    unbounded = (found is None or found.free == -math.inf) and not seen.maximized
    if not (found is not None and found.sums if mean else unbounded):
        return ""
    program.loss = lambda outputs, targets: plain(outputs, targets) / (len(targets) if mean else -1)
    return "Take the mean over the batch instead of the sum." if mean else "Minimize the negative of the loss."


def _swapped(program: UserProgram, seen: Evidence) -> str:
    out, targets, plain = seen.first.output, seen.call.targets, program.loss
    if out is None or not isinstance(targets, Tensor) or targets.shape != out.shape or not targets.is_floating_point():
        return ""
    with torch.no_grad():
        one, other = float(plain(out, targets)), float(plain(targets, out))
        program.loss = lambda outputs, targets: plain(targets, outputs)
        found = reach(out, targets, program.loss)  # a loss that is meant so has a floor
    wrong = one == other or found is None or found.free == -math.inf
    return "" if wrong else "Exchange the arguments of the loss: it takes outputs first, then targets."


def _rate(program: UserProgram, seen: Evidence, factor: float) -> str:
    for group in program.optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    return f"Set the learning rate to {float(f'{rate_of(program.optimizer):.1g}'):g}."


def _rate_by_size(program: UserProgram, seen: Evidence) -> str:
    """The rate at which a step changes weights by 1/100, for Adam its usual one, where 100 times more is not enough."""
    sizes = [] if seen.after is None else [size for size in seen.after.sizes.values() if 0 < size < math.inf]
    factor = 1e-2 / statistics.median(sizes) if sizes else 1.0
    factor = USUAL / (rate_of(program.optimizer) or USUAL) if isinstance(program.optimizer, ADAM) else factor
    return "" if 1 / 300 < factor < 300 else _rate(program, seen, factor)


def _adam(program: UserProgram, seen: Evidence, rate: float) -> str:
    if isinstance(program.optimizer, ADAM) and program.optimizer.defaults["eps"] < 1e-4:
        return ""
    program.optimizer = torch.optim.Adam([p for g in program.optimizer.param_groups for p in g["params"]], rate)
    return f"Use Adam at a rate of {rate:g}."


def _made_anew(program: UserProgram) -> torch.optim.Optimizer:
    """The same optimizer over all parameters of the model as it is now."""
    old, trained = program.optimizer, [p for p in program.call.model.parameters() if p.requires_grad]
    rest = {k: v for k, v in old.param_groups[0].items() if k in old.defaults}
    return type(old)(trained, **rest | {"lr": rate_of(old)})


def _anew(program: UserProgram, seen: Evidence) -> str:
    new = _made_anew(program)
    one, two = ({id(p) for g in o.param_groups for p in g["params"]} for o in (new, program.optimizer))
    if one == two and program.step is None:
        return ""
    program.optimizer, program.step = new, None
    if one == two:
        return USUAL_LOOP
    return "Make the optimizer last, of this model's parameters()."


def _inputs(program: UserProgram, seen: Evidence) -> str:
    changed = [False]

    def item(t: Tensor) -> Tensor:
        if not t.is_floating_point() or t.dim() < 2 or len(t) < 4:
            return t
        dims = (0,) if t.dim() == 2 else tuple(range(t.dim()))
        mean, deviation = t.mean(dims, keepdim=True), t.std(dims, keepdim=True)
        deviation = deviation.masked_fill(deviation <= 1e-6 * t.abs().amax().clamp_min(1e-12), 1.0)
        off = (mean.abs() / deviation).median() > 0.5 or deviation.median() > 2 or deviation.median() < 0.3
        changed[0] |= bool(off)
        return (t - mean) / deviation if bool(off) else t

    program.call = replace(program.call, batch=mapped(program.call.batch, item))
    return "Standardize each input over the training examples." if changed[0] else ""


def _targets(program: UserProgram, seen: Evidence) -> str:
    targets = program.call.targets
    if not targets.is_floating_point() or float(targets.abs().max()) <= 1.5:
        return ""
    deviation, fix = targets.std(0, keepdim=True), "Standardize the targets."
    new = (targets - targets.mean(0, keepdim=True)) / deviation.where(deviation > 0, 1.0)
    two, (low, top) = targets.unique(), (float(end) for end in targets.aminmax())
    if (len(two) == 2 and low >= 0) or (seen.reach is not None and seen.reach.free == -math.inf):  # for probabilities
        new, fix = (targets - low) / (top - low), f"Bring the targets to 0 to 1, where they go from {low:g} to {top:g}."
        fix = fix if low else f"Divide the targets by {top:.4g}."
    program.call = replace(program.call, targets=new)
    return fix


def _column(program: UserProgram, seen: Evidence) -> str:
    out, targets = seen.first.output, program.call.targets
    if out is None or out.dim() == targets.dim() or out[0].numel() != targets[0].numel():
        return ""
    program.call = replace(program.call, targets=targets.reshape(-1, *out.shape[1:]))
    return "Give outputs and targets the same shape: targets[:, None], or outputs.squeeze(1)."


def _batch_first(program: UserProgram, seen: Evidence) -> str:
    found = [m for m in program.call.model.modules() if hasattr(m, "batch_first")]
    for module in found:
        module.batch_first = not module.batch_first  # type: ignore[assignment]
    return f"Set batch_first={found[0].batch_first} where it is {not found[0].batch_first}." if found else ""


def _drawn(program: UserProgram, seen: Evidence) -> str:
    call = program.call
    initialize(call.model, x=(call.rows(slice(0, 64)) if call.splits else call).batch, forward=call.forward)
    return "Draw the weights anew: epoch0.initialize(model, x=batch)."


def _hidden(program: UserProgram, seen: Evidence) -> str:
    model = program.call.model
    _, last = ending(model, seen)
    inside = {n: type(m).__name__ for n, m in model.named_modules() if isinstance(m, FLAT) and n != last}
    for name in inside:
        model.set_submodule(name, nn.ReLU())
    return f"Use ReLU instead of {next(iter(inside.values()))} in the hidden layers." if inside else ""


def _between(program: UserProgram, seen: Evidence) -> str:
    model, layers = program.call.model, list(dict.fromkeys(n for n, m, _ in seen.first.ran if isinstance(m, MAPS)))
    if len(layers) < 2 or not affine(program.call, model, layers[-1]):
        return ""
    for name in layers[:-1]:
        model.set_submodule(name, nn.Sequential(model.get_submodule(name), nn.ReLU()))
    return f"Put a nonlinearity between the layers: without one the {len(layers)} of them are a single linear map."


def _attached(program: UserProgram, seen: Evidence) -> str:
    """Nothing is detached, by the model or by the loop body."""
    cuts, model, step = list[str](), program.call.model, program.step

    class Attached(Calls):
        def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name != "detach" or not args[0].requires_grad:
                return func(*args, **kwargs)
            cuts.append(name)
            return args[0]

    def within(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        with Attached():
            return function(*args, **named)

    model.forward, program.step = partial(within, model.forward), step and partial(within, step)
    program.train(1)
    return "Leave detach() out: nothing before it gets a gradient from what comes after." if cuts else ""


def _thawed(program: UserProgram, seen: Evidence) -> str:
    if all(p.requires_grad for p in program.call.model.parameters()):
        return ""
    program.call.model.requires_grad_(True)
    program.optimizer = _made_anew(program)
    return "Train the frozen weights, too."


def _other_way(program: UserProgram, seen: Evidence, turn: bool) -> str:
    """The two targets exchanged, which losses of distances tell apart; or rows and columns of square maps."""
    targets = program.call.targets
    if turn and targets.dim() > 2 and targets.shape[-1] == targets.shape[-2] > 3:
        program.call = replace(program.call, targets=targets.transpose(-1, -2))
        return "Exchange rows and columns of the targets: they are turned against the inputs."
    if not turn and targets.is_floating_point() and (two := targets.unique().tolist()) in ([0, 1], [-1, 1]):
        program.call = replace(program.call, targets=sum(two) - targets)
        return f"Exchange the targets {two[0]:g} and {two[1]:g}, or what the loss makes of the one and the other."
    return ""


def _wider(program: UserProgram, seen: Evidence) -> str:
    """Hidden layers of few units made wide, and the batch norms behind them."""
    model, least = program.call.model, WIDE
    ran = [(n, m) for n, m, _ in seen.first.ran if isinstance(m, nn.Linear | nn.BatchNorm1d)]
    if len(set(layers := [n for n, m in ran if isinstance(m, nn.Linear)])) < len(layers):
        return ""
    for name, after in pairwise(layers):
        one, two = model.get_submodule(name), model.get_submodule(after)
        assert isinstance(one, nn.Linear) and isinstance(two, nn.Linear)
        if one.out_features < WIDE and one.out_features == two.in_features:
            least = min(least, one.out_features)
            model.set_submodule(name, nn.Linear(one.in_features, WIDE, one.bias is not None).to(one.weight))
            model.set_submodule(after, nn.Linear(WIDE, two.out_features, two.bias is not None).to(two.weight))
            place = [n for n, _ in ran].index(name)
            if isinstance(ran[place + 1][1], nn.BatchNorm1d):
                model.set_submodule(ran[place + 1][0], nn.BatchNorm1d(WIDE).to(one.weight))
    program.optimizer = _made_anew(program)
    return f"Give the hidden layers {WIDE} units: one has {least}, which distinguishes little." if least < WIDE else ""


def _normed(program: UserProgram, seen: Evidence) -> str:
    model = program.call.model
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, MAPS)]
    normed = any(isinstance(m, NORMS) for m in model.modules())
    if normed or not isinstance(model, nn.Sequential) or len(layers) < 2 or program.size < 4:
        return ""
    for name, layer in layers[:-1]:
        width = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
        norm = (nn.BatchNorm2d if isinstance(layer, nn.Conv2d) else nn.BatchNorm1d)(width).to(layer.weight)
        model.set_submodule(name, nn.Sequential(layer, norm))
        program.optimizer.add_param_group({"params": list(norm.parameters())})
    return "Put a batch norm behind each hidden layer."


def undropped(model: nn.Module) -> bool:
    """Leave dropout out; whether there was any."""
    found = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0]
    for module in found:
        module.p = 0.0
    return bool(found)


def _free(program: UserProgram, seen: Evidence) -> str:
    found = undropped(program.call.model)
    decayed = [g for g in program.optimizer.param_groups if g.get("weight_decay")]
    for group in decayed:
        group["weight_decay"] = 0.0
    if seen.through:  # of weights of zero it is nothing
        memo: dict[int, Any] = {}
        for p in copy.deepcopy(seen.model, memo).parameters():
            p.data.zero_()
        program.loss = partial(seen.loss_of, loss=rebound(seen.call.criterion, memo))
    parts = ["dropout"] * found + ["weight decay"] * bool(decayed) + ["the penalty of the weights"] * bool(seen.through)
    return f"Leave {' and '.join(parts)} out." if parts else ""


def _batch(program: UserProgram, seen: Evidence) -> str:
    if program.size >= 8 or program.call.examples < 32:
        return ""
    program.size = 32
    return "Take batches of 32 examples."


def _in_any_order(program: UserProgram, seen: Evidence) -> str:
    program.ordered, before = False, program.ordered
    return "Shuffle the examples: DataLoader(..., shuffle=True)." if before else ""


def _padded_in_front(program: UserProgram, seen: Evidence) -> str:
    tokens = program.call.batch
    if (after := padding_after(tokens, program.call.model)) is None:
        return ""
    places = (torch.arange(tokens.shape[1]) - after[:, None]) % tokens.shape[1]
    program.call = replace(program.call, batch=tokens.gather(1, places))
    return "Pack the sequences (pack_padded_sequence), or pad in front: padding is read last."


CHANGES: tuple[Change, ...] = (
    Change("between", "hidden activation", "model", _between),
    Change("end without", "output activation", "outputs", partial(_end_with, new="")),
    Change("end sigmoid", "output activation", "outputs", partial(_end_with, new="Sigmoid")),
    Change("end softmax", "output activation", "outputs", partial(_end_with, new="Softmax")),
    Change("end log-softmax", "output activation", "outputs", partial(_end_with, new="LogSoftmax")),
    Change("rate/10", "learning rate", "optimizer", partial(_rate, factor=0.1)),
    Change("rate/100", "learning rate", "optimizer", partial(_rate, factor=0.01)),
    Change("inputs", "input scale", "inputs", _inputs),
    Change("targets", "target scale", "targets", _targets),
    Change("column", "shapes", "targets", _column),
    Change("rate*10", "learning rate", "optimizer", partial(_rate, factor=10.0)),
    Change("rate*100", "learning rate", "optimizer", partial(_rate, factor=100.0)),
    Change("rate by size", "learning rate", "optimizer", _rate_by_size),
    Change("anew", "update", "optimizer", _anew),
    Change("attached", "gradient flow", "model", _attached),
    Change("thawed", "gradient flow", "model", _thawed),
    Change("turned", "labels", "targets", partial(_other_way, turn=True)),
    Change("exchanged", "labels", "targets", partial(_other_way, turn=False)),
    Change("draw", "initialization", "model", _drawn),
    Change("wider", "architecture", "model", _wider),
    Change("swapped", "loss", "loss", _swapped),
    Change("loss", "loss", "loss", _fitting_loss),
    Change("mean", "loss", "loss", partial(_scaled, mean=True)),
    Change("sign", "loss", "loss", partial(_scaled, mean=False)),
    Change("adam", "optimizer", "optimizer", partial(_adam, rate=1e-3)),
    Change("adam*10", "optimizer", "optimizer", partial(_adam, rate=1e-2)),
    Change("hidden", "hidden activation", "model", _hidden),
    Change("free", "regularization", "model", _free),
    Change("batch_first", "shapes", "model", _batch_first),
    Change("norm", "normalization", "model", _normed),
    Change("batch", "batch size", "data", _batch),
    Change("padding", "data", "inputs", _padded_in_front),
    Change("order", "data", "data", _in_any_order),
)
