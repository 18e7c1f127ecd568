"""Find the faults of a program: all checks before training, then a trial, and what repairs it; most certain first."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from inspect import isfunction, signature
from typing import Any
from warnings import catch_warnings

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, Subset

from epoch0.diagnosis.faults import gradients, outputs, updates, values
from epoch0.diagnosis.faults.body import MOVES, as_handed, comes_to_backward
from epoch0.diagnosis.faults.evidence import CERTAIN, SAMPLED, Evidence, Fault, peak, raised, twins
from epoch0.diagnosis.faults.mend import Mending, Tell, mend, ranked
from epoch0.errors import InputError
from epoch0.results import counted, first_names
from epoch0.seeds import generator
from epoch0.tracing.call import LENGTH_FIRST, Call, copied_in_full, drawn, exchanged, joined, mapped, parts, same_shapes
from epoch0.tracing.guard import HALF, noise_kept, unchanged
from epoch0.tracing.loss import scalar_loss

FURTHER = 10 * SAMPLED  # examples that are read of data of which SAMPLED are learned by heart
UNTRAINED = "Whether it learns: a copy of the program could not be trained"

CHECKS: list[Callable[..., Iterator[Fault]]] = [
    check
    for family in (gradients, outputs, updates, values)
    for name, check in vars(family).items()
    if isfunction(check) and check.__module__ == family.__name__ and not name.startswith("_")
]
"""The table of checks: all public functions of these modules, in order.

Each gets what its parameters are called, ``seen`` or an attribute of it, and is not asked where one of them is None."""


@dataclass(frozen=True)
class FoundFaults:
    """What was found, and what was not looked at."""

    faults: tuple[Fault, ...]  #: most certain first
    not_examined: tuple[str, ...]  #: what was not looked at, one sentence each, and what to pass so that it would be
    passes: int  #: how many times the model or its copy was run before a trial
    mending: Mending | None = None  #: the trial of the program, and the changes that were tried on copies; None without

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults) or "No fault found."


def find_faults(
    model: nn.Module, batch: Any, targets: Any = None, *, seconds: float = 60.0, tell: Tell | None = None, **more: Any
) -> FoundFaults:
    """Why a program does not learn, and the change that repairs it; a sound program gives no fault.

    >>> net = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Softmax(1))
    >>> found = find_faults(net, x, y, loss=torch.nn.functional.cross_entropy)     # x of shape (100, 64), y of (100,)
    >>> found.faults[0].kind, found.faults[0].fix
    ('output activation', 'The loss takes logits: leave the softmax out.')

    The arguments are those of :func:`epoch0.checkup`, and an InputError says which of them cannot be used; ``seconds``
    are CPU seconds for the trial of the program and of changes, and 0 leaves both out. A copy of the optimizer trains
    copies of the model. ``tell`` gets what is tried and the share of the time; Ctrl-C ends the trials, not the search.
    """
    seen = evidence(model, batch, targets, **more)
    return conclude(seen, *suspects(seen), seconds, tell)


def evidence(
    model: nn.Module, batch: Any, targets: Any = None, *, loss: Any = None, forward: Any = None, **more: Any
) -> Evidence:
    """The program, checked, before anything of it is run; ``more``: its ``optimizer``, ``data`` and ``step``."""
    optimizer, data, step = (more.pop(name, None) for name in ("optimizer", "data", "step"))
    if more:
        raise TypeError(f"{next(iter(more))}= is no part of a program.")
    given = own_optimizers(model) if optimizer is None else optimizer
    optimizers = tuple(given) if isinstance(given, list | tuple) else (given,)
    if wrong := [type(item).__name__ for item in optimizers if not isinstance(item, torch.optim.Optimizer)]:
        raise InputError(f"optimizer={wrong[0]}; give a torch.optim.Optimizer over this model, or several.")
    coarse = isinstance(model, nn.Module) and next((p.dtype for p in model.parameters() if p.dtype in HALF), None)
    unfilled = bool(optimizers) and _unfilled(model)
    if unfilled or (optimizers and coarse):
        model, optimizers = twins(model, optimizers, {})  # together, so that it still is the optimizer of these
        model = model.float() if coarse else model
    if step is not None and not callable(step):
        raise InputError(f"step={step!r}; give a function step(model, optimizer, loss, x, y).")
    batch, targets, lost = _finite(batch, targets, loss)
    lost = (_filled(model) if unfilled else None) or lost or _rewritten(data)
    call = apart(Call.of(model, batch, targets, loss=loss, forward=forward), data)
    if optimizers and coarse:
        call = replace(call, notes=(copied_in_full(coarse), *call.notes))
    turned, lone = LENGTH_FIRST in call.notes, ""  # what of the loop body cannot be followed
    known, size = _known(call, data, turned)
    x = None if known is None or step is not None else known[0]
    if isinstance(x, Tensor) and isinstance(call.batch, Tensor) and x.shape[1:] != call.batch.shape[1:]:
        with unchanged(call.model), torch.no_grad():
            try:
                call.raw(batch=x[:2])
            except Exception as error:
                text = f"data= holds inputs of shape {tuple(x.shape[1:])}, batch= of {tuple(call.batch.shape[1:])}"
                raise InputError(f"{text}; of the former the model raises {raised(error)}") from error
    if known is not None:
        inputs, wanted, other = _finite(*known, loss)
        if step is not None and all(isinstance(t, Tensor) for t in (wanted, targets)) and targets.is_floating_point():
            wanted = wanted.to(targets.dtype)  # its loop makes floats of them
        known, lost = (inputs, wanted), other or lost
    if optimizer is not None and len(optimizers) > 1 and (one := _joined(model, optimizers)) is not None:
        idle, own = [torch.optim.SGD([nn.Parameter(torch.zeros(()))], 0.0)] * (len(optimizers) - 1), step
        body = lambda model, optimizer, *given: own(model, [optimizer, *idle], *given)  # noqa: E731
        if step is None or [comes_to_backward(call, one, body, n) for n in (0, 1)] == [True, False]:  # for one loss
            optimizers, step = (one,), step and body
    if step is not None and len(optimizers) == 1 and not turned:
        with call.unchanged():
            call, known, step, lone = as_handed(call, known, optimizers[0], step)
    steps = 0
    with suppress(Exception):  # of a stream nobody knows
        steps = len(data) if isinstance(data, DataLoader) else 0
    seen = Evidence(call, optimizers, known, size, steps, step, _in_order(data), lost=lost, lone=lone)
    if turned and step is not None:  # the user's loop body and loss take the length first
        own = loss or (lambda outputs, wanted: scalar_loss(outputs, wanted, None))
        seen.step = lambda model, optimizer, _, x, y: step(model, optimizer, own, *_turned((x, y)))
    if data is not None and step is None and lost is None:
        seen.more = lambda: _known(call, data, turned, FURTHER)[0]
    whole = call.divided(True) if steps < 2 and seen.mixed else call  # of a graph that its model knows
    return seen if whole.splits == call.splits else replace(seen, call=whole)


def _finite(batch: Any, targets: Any, loss: Any) -> tuple[Any, Any, Fault | None]:
    """The examples that hold numbers only, and what the others show; all where none or every one does. All, too, where
    a loss is given that leaves out the targets that hold none.
    """
    left_out = False
    with suppress(Exception), unchanged(loss) if isinstance(loss, nn.Module) else nullcontext():
        left_out = not bool(targets.isfinite().all()) and bool(loss(torch.zeros_like(targets), targets).isfinite())
    looked_at = (batch,) if left_out else (batch, targets)
    sides = [side for given in looked_at for name, side in parts(given) if side.dim() and "mask" not in name]
    if len({len(side) for side in sides}) != 1 or any(side.layout != torch.strided for side in sides):
        return batch, targets, None
    whole = torch.stack([side.reshape(len(side), -1).isfinite().all(1) for side in sides]).all(0)
    bad = int((~whole).sum())
    if bad == len(whole) > 1 and isinstance(batch, Tensor):  # places that hold a number in no example
        never = ~batch.isfinite().any(0)
        filled = batch.masked_fill(never, 0.0)
        if bool(never.any()) and bool(filled.isfinite().all()):
            note = f"{int(never.sum())} of {never.numel()} inputs hold NaN or infinity in every example."
            fix = "See what they were divided by: the deviation of an input that is always the same is 0."
            return filled, targets, Fault("input scale", "inputs", note, fix, certainty=CERTAIN)
    if bad in (0, len(whole)):
        return batch, targets, None
    batch, targets = (mapped(given, lambda t: t[whole] if t.dim() else t) for given in (batch, targets))
    note = f"{bad} of {len(whole)} examples hold NaN or infinity, and a step with one of them makes the weights NaN."
    fix = "Leave them out, or fill what is missing: here they were left out."
    return batch, targets, Fault("data", "inputs", note, fix, certainty=CERTAIN)


def _unfilled(model: Any) -> dict[str, Tensor]:
    """The weights that hold NaN or infinity, by name; what has no values yet, or none here, is refused later."""
    named = model.named_parameters() if isinstance(model, nn.Module) else ()
    known = {name: p.detach() for name, p in named if not (is_lazy(p) or p.is_meta)}
    return {name: p for name, p in known.items() if not bool(p.isfinite().all())}


def _filled(model: nn.Module) -> Fault:
    """Give those of a copy the usual values, and say which they were."""
    where, *_ = bad = _unfilled(model)
    count = sum(int((~p.isfinite()).sum()) for p in bad.values())
    for name, p in bad.items():
        _ = nn.init.xavier_normal_(p, generator=generator(0)) if p.dim() > 1 else p.fill_(not name.endswith("bias"))
    message = f"NaN or infinity before the first step: {counted(count, 'value')} of {first_names(list(bad))}."
    fix = f"Initialize {where}, as was done here: torch.empty and torch.Tensor(n, m) hold what was in memory."
    return Fault("initialization", where, message, fix, certainty=CERTAIN)


def _rewritten(data: Any) -> Fault | None:
    """That a dataset writes into what it holds, whenever an example is read."""
    held = data.dataset if isinstance(data, DataLoader) else data
    with suppress(Exception), noise_kept():
        one = next(t for _, t in parts(held[0]) if isinstance(held, Dataset) and t.is_floating_point())
        before = one.clone()
        held[0]
        if (apart := float((one - before).nan_to_num().abs().mean())) > 0:
            message = f"Read again, example 0 differs by {apart:.3g}: the dataset writes into what it holds."
            return Fault("data", "data", message, "Work on a copy: x = x / 255, and not x /= 255.", certainty=CERTAIN)
    return None


def _joined(model: Any, parts: tuple[torch.optim.Optimizer, ...]) -> torch.optim.Optimizer | None:
    """Optimizers of one kind that have parameters of the model among them, as one of all."""
    groups, own = [dict(group) for one in parts for group in one.param_groups], {id(p) for p in model.parameters()}
    with suppress(Exception):  # two have the same parameters, or they take no groups
        if len({*map(type, parts)}) == 1 and own.issuperset(id(p) for group in groups for p in group["params"]):
            made: torch.optim.Optimizer = type(parts[0])(groups)  # type: ignore[call-arg]
            made.state.update(item for one in parts for item in one.state.items())
            return made
    return None


def apart(call: Call, data: Any = None) -> Call:
    """The call with its examples along the dimension where they can be separated: the first of a loader, or second."""
    return (call if isinstance(data, DataLoader | Dataset) and call.examples > 1 else call.examples_first()).divided()


def own_optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """The optimizers that a LightningModule brings, made anew."""

    def within(made: Any) -> list[torch.optim.Optimizer]:
        made = made.get("optimizer") if isinstance(made, Mapping) else made
        several = made if isinstance(made, tuple | list) else ()
        return [made] if isinstance(made, torch.optim.Optimizer) else [one for part in several for one in within(part)]

    try:
        return within(model.configure_optimizers())
    except Exception:  # it has none, or it asks for a trainer that is not there
        return []


def suspects(seen: Evidence) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """What the checks see before training, most certain first, and which of them could not be made."""
    found, failed = [] if seen.lost is None else [seen.lost], list[str]()
    with unchanged(seen.model), catch_warnings(action="ignore", category=UserWarning):  # of numbers with a graph
        for check in CHECKS:
            try:
                given = [seen if name == "seen" else getattr(seen, name) for name in signature(check).parameters]
                found += [] if any(item is None for item in given) else check(*given)
            except Exception as error:  # a check may not take the report down with it
                failed.append(f"{check.__name__.replace('_', ' ')} could not be looked at ({type(error).__name__})")
    best: dict[tuple[str, str], Fault] = {}
    for fault in sorted(found, key=lambda fault: -fault.certainty):
        best.setdefault((fault.kind, fault.where), fault)
    return tuple(best.values()), tuple(failed)


def conclude(
    seen: Evidence, faults: tuple[Fault, ...], failed: tuple[str, ...], seconds: float, tell: Tell | None = None
) -> FoundFaults:
    """Train the program, try changes where it does not learn, and rank what was seen and what mends it."""
    other = [fault for fault in faults if fault is not seen.lost]  # what is trained is without that
    done = mend(seen, other, seconds, tell or (lambda what, share: None)) if seconds > 0 else None
    if seen.lone and done is not None and not (done.sound or (done.mended and seen.lone != MOVES)):
        done = None  # a loss of which only the number is known may not condemn
    return FoundFaults(ranked(faults, done), (*_missing(seen, done), *failed), seen.passes, done)


def _missing(seen: Evidence, done: Mending | None) -> Iterator[str]:
    one = len(seen.optimizers) == 1
    groups = [group for item in seen.optimizers for group in item.param_groups]
    rate = max((peak(group) for group in groups if "initial_lr" in group and seen.step is None), default=0.0)
    table = (
        (seen.first.problem, f"The loss could not be computed ({seen.first.problem.rstrip('.')})."),
        (not seen.optimizers, "The optimizer: pass optimizer=."),
        (one and not seen.after, "Steps of the optimizer: the model and its optimizer could not be copied or run."),
        (rate > 0, f"The schedule of the rate: without step= it was judged at {rate:g}."),
        (seen.data is None, "Training examples beyond the batch: pass data=."),
        (seen.data and seen.data[0] is None, "Further examples: data= holds no pairs such as batch and targets."),
        (seen.step is None, "The body of the training loop: pass step=."),
        (seen.reach is None, "What the loss can reach: outputs and targets are not one tensor of as many rows."),
    )
    yield from (note for missing, note in table if missing)
    if done is not None and done.own.untold:
        yield "Whether outputs are of use: the loss reads no targets, or none by example; it is seen how far it falls."
    if seen.untold:
        yield f"Whether it learns: {seen.untold}"
    elif seen.lone and done is None:
        yield f"Whether it learns: {seen.lone[0].lower()}{seen.lone[1:]}"
    elif seen.stopped:
        yield f"{UNTRAINED} ({seen.stopped.rstrip('.')})."
    elif done is None and len(seen.optimizers) > 1:
        yield "Whether it learns: the steps of several optimizers are not followed; pass the model and loss of one."
    elif done is None:
        yield "Whether it learns: a trial takes optimizer=, four examples, targets or a loss, and seconds= above 0."
    elif done.stopped:
        yield done.stopped


def _in_order(data: Any) -> bool:
    """Whether a loader gives the examples as they lie."""
    order = data if getattr(data, "batch_sampler", None) is None else data.batch_sampler
    return isinstance(data, DataLoader) and isinstance(getattr(order, "sampler", None), SequentialSampler)


def _known(call: Call, data: Any, turned: bool, most: int = SAMPLED) -> tuple[tuple[Any, Any] | None, int | None]:
    """Inputs and targets of up to ``most`` examples, and the batch size of a loader."""
    if data is None:
        return None, None
    if isinstance(data, tuple | list) and len(data) == 2:
        tensors = all(isinstance(part, Tensor) for part in data)
        data = _turned(data) if turned and tensors else data
        if tensors or (same_shapes(data[0], call.batch) and same_shapes(data[1], call.targets)):
            return (joined([data[0]], most, True), joined([data[1]], most, True)), None
    if generator := isfunction(data):
        with suppress(Exception):  # what is no such function is refused below
            data = iter(data())
    if (isinstance(data, Iterator) and not generator) or not isinstance(data, Iterable | Dataset):
        wanted = "a DataLoader, a Dataset, a pair (inputs, targets) or a function that makes an iterator anew"
        raise InputError(f"data={type(data).__name__}; give {wanted}.")
    if isinstance(data, DataLoader) and _in_order(data) and (count := len(data.sampler)) > most:  # type: ignore[arg-type]
        subset = Subset(data.dataset, drawn(count, most).tolist())  # as sorted as all of them
        data = DataLoader(subset, getattr(data.batch_sampler, "batch_size", None), collate_fn=data.collate_fn)
    streams = [getattr(item, "generator", None) for item in (data, getattr(data, "sampler", None))]
    with unchanged(call.model), noise_kept(*(stream for stream in streams if isinstance(stream, torch.Generator))):
        pairs = [_turned(pair) if turned else pair for pair in _read(data, call, most)]
        first = None if _of_examples(data, call) else next((len(t) for _, t in parts(pairs[:1]) if t.dim()), None)
    many = sum(len(t) for pair in pairs for _, t in parts(pair[1:]) if t.dim()) > 2 * most  # of a graph, say
    inputs, targets = (joined([pair[place] for pair in pairs], most, many) for place in (0, 1))
    return (inputs, targets), (data.batch_size if isinstance(data, DataLoader) else None) or first


def _of_examples(data: Any, call: Call) -> bool:
    """Whether data are a sequence of single examples, as a Dataset is, and not one of batches."""
    with suppress(Exception):
        one, many = (next(t.dim() for _, t in parts(item)) for item in (data[0], call.batch))
        return bool(one < many) or isinstance(data, Dataset)
    return isinstance(data, Dataset) and not isinstance(data, IterableDataset)


def _read(data: Any, call: Call, most: int) -> list[tuple[Any, Any]]:
    single, source = _of_examples(data, call), data
    several = len(call.batch) if isinstance(call.batch, tuple | list) and call.targets is not None else 1
    pairs, count = list[tuple[Any, Any]](), 0
    some = drawn(len(source), most).tolist() if single else ()  # often sorted
    for item in (source[i] for i in some) if single else source:
        if isinstance(item, tuple | list) and len(item) == several + 1 > 2:  # as a TensorDataset has them
            item = (tuple(item[:-1]), item[-1])
        alone = isinstance(item, Tensor | Mapping) or (isinstance(item, tuple | list) and len(item) != 2)
        if call.targets is None and alone:  # labels are among them, or there are none
            item = (item[0] if isinstance(item, tuple | list) and len(item) == 1 else item, None)
        if not isinstance(item, tuple | list) or len(item) != 2:
            break
        pairs.append((item[0], item[1]) if not single else (_alone(item[0]), _alone(item[1])))
        count += 1 if single else next((len(t) for _, t in parts(item) if t.dim()), 1)
        if count >= most:
            break
    return pairs


def _turned(pair: Any) -> tuple[Tensor, Tensor]:
    x, y = pair
    return exchanged(x, x.shape[:2]), exchanged(y, x.shape[:2])


def _alone(example: Any) -> Any:
    """One example as a batch."""
    return mapped(torch.tensor(example) if isinstance(example, bool | int | float) else example, lambda t: t[None])
