"""How a model is called: any model on any batch, as its user calls it, and the loss it is trained with.

Every function that takes a model and a batch goes through this module.
"""

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.nn.utils.stateless import _reparametrize_module  # behind torch.func.functional_call

from epoch0.errors import InputError, check_dense, check_finite, reworded
from epoch0.results import first_names
from epoch0.tracing.failures import explain_first_run
from epoch0.tracing.guard import HALF, bare, check_model, unchanged
from epoch0.tracing.loss import Loss, NotFinite, check_loss, check_targets, scalar_loss

Forward = Callable[[nn.Module, Any], Any]

OUTPUTS = ("logits", "last_hidden_state", "sample")  # names of THE output in models that return several things
TARGETS = ("targets", "target")  # parameters of a forward that takes the targets, too
# Keys that make a model return its own loss; the last two are those of forecasts.
LABELS = ("labels", "label", *TARGETS, "start_positions", "return_loss", "future_values", "target_values")

_OWN: Any = object()


@dataclass(frozen=True)
class StepResult:
    """The result of one call of a ``training_step``: its loss, and what the model's forward returned inside it."""

    loss: Any
    outputs: Any


@dataclass(frozen=True, eq=False)
class Call:
    """A model and one batch, called as its user calls it; :meth:`of` makes one.

    >>> call = Call.of(nn.Bilinear(64, 32, 10), {"input1": torch.ones(8, 64), "input2": torch.ones(8, 32)})
    >>> call.output(call.run()).shape, call.examples                       # model(**batch)
    (torch.Size([8, 10]), 8)

    A batch is a tensor, ``model(x)``; a tuple or list, ``model(*batch)``; a mapping, ``model(**batch)``; the last two,
    a tuple only with targets beside it, are ``model(batch)`` where forward takes that one argument only; a graph (with
    ``.x`` and ``.edge_index``), ``model(data.x, data.edge_index, ...)`` where forward has parameters of these two
    names, by the names of all its parameters; any other object, ``model(batch)``. A pair (inputs, targets) is two
    arguments and is not guessed, but for a LightningModule: its ``training_step`` gets the batch whole, its forward as
    many parts as it takes. A tensor of shape (length, examples, ...) with one target an example is read as that.
    Targets given without a loss are also handed to a forward that asks for them, ``forward(x, targets=None)``.
    """

    #: the bare module (not the compiled or parallel wrapper); a float32 copy if the weights are half precision
    model: nn.Module
    batch: Any  #: as given, detached and on the model's device, floats in the model's dtype
    targets: Any  #: as given, on the model's device
    examples: int  #: how many examples the batch holds; of a graph the rows of its targets, else its graphs or nodes
    splits: bool  #: whether :meth:`rows` can take some of the examples
    notes: tuple[str, ...] = ()  #: remarks for the reader of any result
    criterion: Loss | None = None  #: the loss that was given
    forward: Forward | None = None  #: the way of calling that was given
    asks: str | None = None  #: the parameter of the model's forward that takes the targets
    #: of the last run: whether it gave a loss of the model's own ("loss"), and nothing else ("alone")
    _seen: dict[str, bool] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, model: Any, batch: Any, targets: Any = None, *, loss: Any = None, forward: Any = None, empty: bool = False
    ) -> "Call":
        """Check a model, a batch and its targets; where it may be empty, the model may be on the meta device."""
        for what, given in (("loss", loss), ("forward", forward)):
            if given is not None and not callable(given):
                wanted = "loss(outputs, targets)" if what == "loss" else "lambda model, batch: ..."
                raise InputError(f"{what} must be a function, {wanted}, not a {type(given).__name__}.")
        bare_model = bare(model) if isinstance(model, nn.Module) else model
        empty = empty and isinstance(model, nn.Module) and any(p.device.type == "meta" for p in model.parameters())
        model, notes = (bare_model, ()) if empty else _in_full(bare_model)
        if hooked := [repr(n) for n, m in model.named_modules() if m._backward_hooks or m._backward_pre_hooks]:
            notes += (f"Backward hooks of {', '.join(hooked)} do not act on the gains, only on steps and trials.",)
        parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
        home = parameter if parameter is not None else next(model.parameters())
        device = torch.device("cpu") if empty else home.device

        def here(tensor: Tensor) -> Tensor:
            with torch.inference_mode(False):
                return (tensor.clone() if tensor.is_inference() else tensor.detach()).to(device)

        def moved(tensor: Tensor) -> Tensor:
            floating = parameter is not None and tensor.is_floating_point()
            new = here(tensor).to(torch.float32 if empty else home.dtype) if floating else here(tensor)
            return new.requires_grad_(tensor.requires_grad)  # of a point at which the model differentiates

        named = parts(batch, model)
        check_tensors(batch, named)
        batch = mapped(batch, moved)
        for tensor in _tensors(targets) if loss is None else []:  # a loss may leave out what is missing
            check_finite(f"the targets {tuple(tensor.shape)}", tensor)
        targets = mapped(targets, here)
        if forward is None and _second(batch, targets):
            batch, forward, notes = batch.transpose(0, 1), _with_examples_first(), (*notes, LENGTH_FIRST)
            named = parts(batch, model)
        examples = examples_in(batch, targets, named)
        splits = not any("edge_index" in name for name, _ in named) and _divisible(batch, examples)
        if isinstance(targets, Tensor) and targets.dim() and len(targets) != examples:
            flat = named[0][1].dim() > 1 and len(targets) == named[0][1].shape[:2].numel()  # a row each place of texts
            taken = not str(getattr(loss, "__module__", "torch")).startswith("torch")  # by a loss of one's own
            splits = splits and not (taken or flat or (len(named) > 1 and len(targets) % examples == 0))
        check_targets(examples if splits else None, targets)
        splits = splits and (targets is None or _divisible(targets, examples))
        if not splits and isinstance(targets, Tensor) and targets.dim():
            examples = len(targets)
        asks = asked(model, batch, targets) if loss is None and forward is None else None
        return cls(model, batch, targets, examples, splits, notes, loss, forward, asks)

    def rows(self, index: Tensor | slice) -> "Call":
        if not self.splits:
            raise InputError(f"{described(self.batch)} cannot be split into examples.")

        def selected(tensor: Tensor) -> Tensor:
            chosen = tensor[index] if tensor.dim() and len(tensor) == self.examples else tensor
            return chosen.detach().requires_grad_(tensor.requires_grad)

        count = len(range(self.examples)[index]) if isinstance(index, slice) else len(index)
        return replace(self, batch=mapped(self.batch, selected), targets=mapped(self.targets, selected), examples=count)

    def examples_first(self) -> "Call":
        """The same call with the examples first, where the model takes (length, examples, ...), and so do its targets.
        That it does is seen by what changes with what: places along the length change others, examples do not. All of
        its recurrent layers and attention say ``batch_first=False``. Of one example, a graph, they are the places.
        """
        batch, targets = self.batch, self.targets
        places = isinstance(batch, Tensor) and isinstance(targets, Tensor) and min(batch.dim(), targets.dim()) > 1
        orders = [module.batch_first for module in self.model.modules() if hasattr(module, "batch_first")]
        if self.forward is not None or self.asks or not places or targets.shape[:2] != batch.shape[:2]:
            return self
        many = len(batch) > 1 or batch.shape[1] < 4 or (batch.dim() != 3 and batch.is_floating_point())
        if many and (not orders or any(orders) or 1 in batch.shape[:2]):
            return self

        def changes(dim: int) -> bool:
            other = batch.clone()
            other.select(dim, 0).copy_(batch.select(dim, 1))
            outputs = (self.output(self.raw(batch=x.clone())).reshape(*batch.shape[:2], -1) for x in (batch, other))
            one, two = (out.narrow(dim, 1, out.shape[dim] - 1) for out in outputs)
            return not torch.allclose(one, two, rtol=1e-4)

        first = False
        with unchanged(self.model), torch.no_grad(), suppress(Exception):  # outputs may be no row a place
            self.model.eval()
            first = not many or (changes(0) and not changes(1))
        if not first:
            return self
        criterion = None if self.criterion is None else _of_turned(self.criterion)
        batch, targets, notes = batch.transpose(0, 1), targets.transpose(0, 1), (*self.notes, LENGTH_FIRST)
        return Call(self.model, batch, targets, len(batch), many, notes, criterion, _with_examples_first(results=True))

    def divided(self, mixed: bool = False) -> "Call":
        """The same call, no longer to be split where the model or its loss takes all of the examples and not half. Only
        tried where these are mixed, a matrix beside them has a column for each, or their targets are places.
        """
        place = isinstance(t := self.targets, Tensor) and not t.is_floating_point() and len(t.unique()) == self.examples
        held = [t for module in self.model.modules() for t in vars(module).values() if isinstance(t, Tensor)]
        whole = any(self.examples in tensor.shape for tensor in (*held, *self.model.buffers()))
        whole |= any(isinstance(module, nn.RNNBase) for module in self.model.modules())  # it may keep its state
        if not self.splits or self.examples < 4 or not (mixed or place or whole or len(parts(self.batch)) > 1):
            return self
        with unchanged(self.model), torch.no_grad():
            self.model.eval()
            alone = not self._runs() or self.rows(slice(self.examples // 2, None))._runs()
        return self if alone else replace(self, splits=False)

    def _runs(self) -> bool:
        with suppress(InputError):
            raw = self.run()
            return self.targets is None or bool(self.loss(raw).isfinite())
        return False

    def run(self, model: Callable[..., Any] | None = None) -> Any:
        """Run the model on the batch. It is not guarded: it runs in its own mode and may change itself."""
        failed = partial(explain_first_run, model=self.model, given=described(self.batch), stack=())
        with reworded(failed, torch.OutOfMemoryError), as_written():
            return self.raw(model)

    def swapped(self, weights: Mapping[str, Tensor]) -> Any:
        """The model's result with other tensors in place of its own; its errors are not wrapped."""
        with _reparametrize_module(self.model, dict(weights), tie_weights=True):
            return self.raw()

    def raw(self, model: Callable[..., Any] | None = None, batch: Any = None) -> Any:
        """The model's result; its errors are not wrapped."""
        model = self.model if model is None else model
        if batch is None:
            batch = mapped(self.batch, lambda tensor: tensor.clone())  # the model may change its input in place
        with _without_reentry():
            try:
                result = self._called(model, batch)
            except RuntimeError as error:  # a forward that differentiates, as for forces
                if torch.is_grad_enabled() or "not require grad" not in str(error):
                    raise
                with torch.enable_grad():
                    batch = mapped(batch, lambda t: t.requires_grad_() if t.is_floating_point() else t)
                    result = mapped(self._called(model, batch), Tensor.detach)
        self._seen["loss"] = self._own_loss(result) is not None
        return result

    def _called(self, model: Callable[..., Any], batch: Any) -> Any:
        if self._stepped and isinstance(model, nn.Module):
            return self._step(model, batch)
        if self.forward is not None:
            run = partial(self.forward, model, batch)  # type: ignore[arg-type]
        else:
            args, kwargs = arguments(self.model, batch, self.targets is not None)
            run = partial(model, *args, **kwargs, **({self.asks: self.targets} if self.asks else {}))
        if not self._seen.get("alone", self.targets is None and self.criterion is None):
            return run()
        with _collected((model if isinstance(model, nn.Module) else self.model).modules(), last=True) as heard:
            result = run()
        alone = isinstance(result, Tensor) and result.dim() == 0 and result.is_floating_point() and bool(heard)
        self._seen["alone"] = alone
        return StepResult(result, heard[-1][1]) if alone else result

    def output(self, raw: Any) -> Tensor:
        """THE output among what the model returned: the tensor; ``.logits``, ``.last_hidden_state`` or ``.sample``;
        else the first floating point tensor in it that has a gradient and is not a single number; else the first one.
        """
        value = raw.outputs if isinstance(raw, StepResult) else raw
        for name in OUTPUTS:
            part = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
            if isinstance(part, Tensor) and part.is_floating_point() and not isinstance(value, Tensor):
                return part
        if found := [t for t in _tensors(value) if t.is_floating_point()]:  # of equal ones max gives the first
            return max(found, key=lambda t: (t.requires_grad, t.dim() > 0))
        text = f"the model {type(self.model).__name__} returns a {type(value).__name__} without a floating point tensor"
        raise InputError(f"{text}; give forward=lambda model, batch: ... that returns the one to measure.")

    @property
    def has_loss(self) -> bool:
        """Whether there is a loss: with targets, one that was given and does without, or the model's own. That is of
        ``training_step``, or the ``.loss`` or first number that it returns, as a run shows, which is made if need be.
        """
        if self.targets is not None or self.criterion is not None or self._stepped:
            return True
        if "loss" not in self._seen:
            with unchanged(self.model), torch.no_grad():
                self.run()
        return self._seen["loss"]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """The model, and a loss that is a module, come back as they were; see :func:`unchanged`."""
        loss = self.criterion
        with unchanged(self.model), unchanged(loss) if isinstance(loss, nn.Module) else nullcontext():
            yield

    def loss(self, raw: Any, targets: Any = _OWN) -> Tensor:
        """The loss of what the model returned: one finite number with a gradient. A loss that was given gets what the
        model returned, and THE output if it cannot take that (``F.cross_entropy`` of a model that returns a dataclass).
        Without one: cross-entropy of THE output for integer targets, mean squared error for floats; without targets,
        the model's own. Auxiliary outputs count only in a loss that was given.
        """
        targets = self.targets if targets is _OWN else targets
        if self.criterion is not None:
            raw = raw.outputs if isinstance(raw, StepResult) else raw
            if isinstance(raw, Tensor):
                return scalar_loss(raw, targets, self.criterion)
            try:
                value = self.criterion(raw, targets)
            except Exception as error:
                try:
                    return scalar_loss(self.output(raw), targets, self.criterion)
                except NotFinite:
                    raise
                except InputError as other:
                    whole = f"of the whole {type(raw).__name__} returned: {type(error).__name__}: {error}"
                    raise InputError(f"{other}; {whole}") from error
            return check_loss(value, [self.output(raw)])
        if targets is not None:
            return scalar_loss(self.output(raw), targets, None)
        if (own := self._own_loss(raw)) is None:
            returns = f"for which the model {type(self.model).__name__} returns a .loss"
            raise InputError(f"there is no loss: give targets, or a batch with labels {returns}.")
        return check_loss(own, [self.output(raw)])

    @property
    def labels(self) -> tuple[str | int, Tensor] | None:
        """Where in the batch the targets of the model's own loss are, and these; None where there are none."""
        if isinstance(self.batch, Mapping):
            key = next((k for k in LABELS if isinstance(self.batch.get(k), Tensor) and self.batch[k].dim()), None)
            return None if key is None else (key, self.batch[key])
        pair = isinstance(self.batch, tuple | list) and len(self.batch) == 2 and isinstance(self.batch[1], Tensor)
        return (1, self.batch[1]) if pair else None

    def own_loss(self) -> Callable[[Tensor], Tensor] | None:
        """The model's own loss with another tensor in place of THE output, which one of its modules has to return. None
        where none does, or more than once. The model runs anew for each; nothing is guarded.
        """
        with _collected(self.model.modules()) as heard:
            output = self.output(self.raw())
        gave = [item for item, made in heard if made.data_ptr() == output.data_ptr() and made.shape == output.shape]
        if not gave or [item for item, _ in heard].count(gave[0]) > 1:
            return None

        def loss(answer: Tensor) -> Tensor:
            with gave[0].register_forward_hook(lambda module, args, result: answer):
                return self.loss(self.raw())

        return loss

    def _own_loss(self, raw: Any) -> Tensor | None:
        """The loss among what the model returned: ``.loss``, or a single number: the first one, or any for targets."""
        if isinstance(raw, Tensor):
            return None
        loss = raw.get("loss") if isinstance(raw, Mapping) else getattr(raw, "loss", None)
        if loss is None and isinstance(raw, tuple | list) and len(raw) > 1:
            asked = any(name in LABELS for name, _ in parts(self.batch, self.model))
            numbers = [item for item in (raw if asked else raw[:1]) if isinstance(item, Tensor) and not item.dim()]
            loss = next(iter(numbers), None)
        return loss if isinstance(loss, Tensor) else None

    @property
    def _stepped(self) -> bool:
        """Whether the model runs inside its own ``training_step``, whose loss is then the loss."""
        given = self.targets is not None or self.criterion is not None or self.forward is not None
        return not given and _has_step(self.model) and not isinstance(self.batch, Tensor)

    def _step(self, model: nn.Module, batch: Any) -> StepResult:
        step: Callable[..., Any] = model.training_step  # type: ignore[assignment]
        # a class may leave what it computes to its training_step
        owner = next(kind for kind in type(model).__mro__ if "forward" in vars(kind))
        whole = owner.__name__ not in ("Module", "LightningModule") or "forward" in vars(model)
        with _collected([model] if whole else model.modules(), everything=whole) as seen:
            result = step(batch, 0) if len(_parameters(step) or "ab") > 1 else step(batch)
        if not seen:  # the step calls parts of the model, not the model
            args, kwargs = arguments(self.model, batch)
            seen.append((model, model(*args, **kwargs)))
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if not isinstance(loss, Tensor):
            raise InputError(f"training_step returns a {type(result).__name__} without a loss; give targets or a loss.")
        return StepResult(loss, seen[0 if whole else -1][1])


def arguments(model: nn.Module, batch: Any, alone: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments that a batch, or a tuple of inputs alone, is for a model's forward."""
    if isinstance(batch, Tensor | PackedSequence):
        return (batch,), {}
    known = _parameters(model.forward)
    names = known or {}
    if isinstance(batch, Mapping):
        keywords = {str(key): value for key, value in batch.items()}
        free = any(p.kind is p.VAR_KEYWORD for p in names.values())
        needed = [p for p in names.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        whole = known is not None and not free and len(needed) == 1 and needed[0].name not in keywords
        return ((batch,), {}) if whole else ((), keywords)
    if isinstance(batch, tuple | list):
        own = [p for p in names.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        free = known is None or any(p.kind is p.VAR_POSITIONAL for p in names.values())
        several = isinstance(batch, list) or (alone and len(own) == 1 and not _has_step(model))
        if several and not free and 0 < len(own) < len(batch):
            return (batch,), {}  # a list of images, say
        return tuple(batch) if free or not _has_step(model) else tuple(batch)[: len(own)], {}
    if {"x", "edge_index"} <= names.keys() and _is_graph(batch):
        found = {name: getattr(batch, name, None) for name in names}
        return (), {name: value for name, value in found.items() if value is not None}
    return (batch,), {}


def asked(model: nn.Module, batch: Any, targets: Any) -> str | None:
    """The parameter of forward that asks for the targets and that the batch does not fill; None without."""
    if targets is None:
        return None
    args, kwargs = arguments(model, batch, True)
    free = list(_parameters(model.forward) or {})[len(args) :]
    return next((name for name in TARGETS if name in free and name not in kwargs), None)


def parts(batch: Any, model: nn.Module | None = None) -> list[tuple[str, Tensor]]:
    """The tensors of a batch with a name for each: its key, its attribute, or the parameter of forward it goes to."""
    if isinstance(batch, Tensor | PackedSequence):
        return [("input", batch if isinstance(batch, Tensor) else batch.data)]
    if isinstance(batch, Mapping):
        named = [(str(key), value) for key, value in batch.items()]
    elif isinstance(batch, tuple | list):
        names = list(_parameters(model.forward) or {}) if model is not None else []
        more = "target" if model is not None and _has_step(model) else "input"
        named = [(names[i] if i < len(names) else f"{more} {i}", value) for i, value in enumerate(batch)]
    else:
        named = list(_attributes(batch).items())
    return [(name, tensor) for name, value in named for tensor in _tensors(value)]


def starts(model: nn.Module, batch: Any) -> tuple[Tensor | None, list[Tensor], tuple[str, ...]]:
    """Where signals start in a batch: its first floating point tensor of two or more dimensions that is no mask. That
    tensor, or None if it is made from integers inside the model; those integers; remarks for the reader.
    """
    every = parts(batch, model)
    named = [(n, t) for n, t in every if not any(word in n for word in _BESIDE)] or every
    floats = [(name, tensor) for name, tensor in named if tensor.is_floating_point()]
    whole = [t for _, t in named if not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool) and t.dim()]
    # a state that begins at zero is no place for a signal to start
    name, start = next(((n, t) for n, t in floats if t.dim() > 1 and (bool(t.any()) or not whole)), ("", None))
    if start is None and floats and not whole:
        name, start = floats[0]
    held = [f"'{other}'" for other, tensor in floats if start is not None and tensor is not start]
    return start, whole, (f"Signals start at '{name}'; {', '.join(held)} held as given.",) if held else ()


_BESIDE = ("mask", "label", "target", "edge_index")


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same batch with each tensor changed: of tuples, mappings, dataclasses, graphs and plain objects copies."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, PackedSequence):
        return value._replace(data=change(value.data))
    if isinstance(value, tuple | list):
        changed = [mapped(v, change) for v in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if isinstance(value, Mapping):
        new = {key: mapped(v, change) for key, v in value.items()}
        if type(value) is dict or not isinstance(value, MutableMapping):
            return new
        same = copy.copy(value)
        for key, v in new.items():
            same[key] = v
        return same
    held = _attributes(value)
    if not any(isinstance(v, Tensor | tuple | list | Mapping) for v in held.values()):
        return value
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return replace(value, **{name: mapped(getattr(value, name), change) for name in fields})  # type: ignore[type-var]
    other: Any = copy.copy(value)
    if callable(getattr(value, "apply", None)) and _is_graph(value):
        return other.apply(change)
    for name, v in held.items():
        object.__setattr__(other, name, mapped(v, change))
    return other


LENGTH_FIRST = "The second dimension of the batch is read as that of the examples."


def _second(batch: Any, targets: Any) -> bool:
    """Whether targets are one an example only if the second dimension of a sequence is that of the examples."""
    if not (isinstance(batch, Tensor) and isinstance(targets, Tensor) and batch.dim() > 1 and targets.dim() > 0):
        return False
    return (batch.dim() > 2 or not batch.is_floating_point()) and len(batch) != len(targets) == batch.shape[1]


def _with_examples_first(results: bool = False) -> Forward:
    """A way to call a model of (length, examples, ...) with the examples first; ``results``: also in its results."""

    def forward(model: nn.Module, batch: Tensor) -> Any:
        raw = model(batch.transpose(0, 1))
        return mapped(raw, lambda t: exchanged(t, (batch.shape[1], batch.shape[0]))) if results else raw

    return forward


def _of_turned(loss: Loss) -> Loss:
    """A loss of (length, examples, ...) for outputs and targets with the examples first."""

    def criterion(outputs: Any, targets: Any) -> Tensor:
        places = (targets.shape[0], targets.shape[1])
        return loss(mapped(outputs, lambda t: exchanged(t, places)), exchanged(targets, places))

    return criterion


def exchanged(tensor: Tensor, places: Sequence[int]) -> Tensor:
    """The tensor with its first two dimensions in each other's place, if they are these."""
    return tensor.transpose(0, 1) if tensor.dim() > 1 and tuple(tensor.shape[:2]) == tuple(places) else tensor


def same_shapes(one: Any, other: Any) -> bool:
    """Whether two batches have as many tensors, of the same shapes but for the number of examples."""
    shapes = [[tensor.shape[1:] for _, tensor in parts(batch)] for batch in (one, other)]
    return shapes[0] == shapes[1] != []


def drawn(count: int, most: int) -> Tensor:
    """At most so many of ``count`` examples, in order: at even distances they would meet what alternates."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


def joined(batches: list[Any], most: int, evenly: bool = False) -> Any:
    """Batches as one, of at most ``most`` examples, the first; None if they are no tensors, or of different shapes."""
    first = batches[0] if batches else None
    if isinstance(first, Tensor):
        fits = first.dim() and all(isinstance(item, Tensor) and item.shape[1:] == first.shape[1:] for item in batches)
        whole = torch.cat(batches) if fits else None
        if evenly and whole is not None and len(whole) > most:  # often sorted by class
            return whole[drawn(len(whole), most)]
        return whole if whole is None else whole[:most]
    if not isinstance(first, tuple | list | Mapping) or not all(type(batch) is type(first) for batch in batches):
        return None
    keys = list(first) if isinstance(first, Mapping) else range(len(first))
    try:
        found = {key: joined([batch[key] for batch in batches], most, evenly) for key in keys}
    except LookupError:
        return None
    if not found or any(part is None for part in found.values()):
        return None
    return found if isinstance(first, Mapping) else tuple(found.values())


def described(batch: Any) -> str:
    """A batch in words, for errors: its tensors and their shapes."""
    if isinstance(batch, Tensor):
        return f"an input of shape {tuple(batch.shape)}"
    if isinstance(batch, tuple | list):
        return f"inputs of shapes {first_names([str(tuple(t.shape)) for t in _tensors(batch)])}"
    return f"a {type(batch).__name__} of {', '.join(f'{name} {tuple(t.shape)}' for name, t in parts(batch))}"


@contextmanager
def _collected(
    modules: Iterable[nn.Module], *, everything: bool = False, last: bool = False
) -> Iterator[list[tuple[nn.Module, Any]]]:
    """Collect what these modules return, in order; unless ``everything`` no numbers: losses and metrics are modules."""
    heard: list[tuple[nn.Module, Any]] = []

    def hear(module: nn.Module, args: Any, result: Any) -> None:
        if last and heard and isinstance(result, Tensor) and heard[0][1].requires_grad > result.requires_grad:
            return  # the last of those that depend on what is measured
        if everything or (isinstance(result, Tensor) and result.dim() > 0):
            heard[:] = [(module, result)] if last else [*heard, (module, result)]

    with ExitStack() as hooks:
        for one in modules:
            hooks.enter_context(one.register_forward_hook(hear))
        yield heard


@contextmanager
def packed_in_any_order() -> Iterator[None]:
    """Pack sequences whatever their order: examples are drawn anew, so batches that came sorted are so no more."""
    pack: Any = nn.utils.rnn.pack_padded_sequence
    kept, pack.__defaults__ = pack.__defaults__, (False, False)  # of batch_first and enforce_sorted
    try:
        yield
    finally:
        pack.__defaults__ = kept


@contextmanager
def _without_reentry() -> Iterator[None]:
    """Run the parts of a model that would be computed again from within its backward pass (``use_reentrant=True``)."""
    function: Any = torch.utils.checkpoint.CheckpointFunction
    outermost = "apply" not in vars(function)  # else a model runs within a model
    function.apply = staticmethod(lambda run, preserve, *args: run(*args))
    try:
        yield
    finally:
        if outermost:
            del function.apply  # its parent has one


@contextmanager
def as_written() -> Iterator[None]:
    """Run the python of compiled parts, in which every call can be seen; without dynamo nothing can be compiled. Under
    autocast weights are not kept in its precision, where a step of a copy would not be seen.
    """
    kept, compiled = torch.is_autocast_cache_enabled(), "torch._dynamo" in sys.modules
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        torch.set_autocast_cache_enabled(kept)


def _in_full(model: Any) -> tuple[nn.Module, tuple[str, ...]]:
    """The checked model, or its float32 copy with a note."""
    coarse = isinstance(model, nn.Module) and next((p.dtype for p in model.parameters() if p.dtype in HALF), None)
    if not coarse or isinstance(model, torch.jit.ScriptModule):
        check_model(model)
        return model, ()
    try:
        with unchanged(model):
            wide = copy.deepcopy(model).float()
    except (RuntimeError, TypeError) as error:
        why = f"the weights are {coarse}, too coarse to measure in, and the model {type(model).__name__}"
        raise InputError(f"{why} cannot be copied ({error}); give its float32 copy.") from error
    check_model(wide)
    return wide, (copied_in_full(coarse),)


def copied_in_full(dtype: torch.dtype) -> str:
    """The note on a float32 copy of weights of this dtype."""
    return f"The weights are {str(dtype).removeprefix('torch.')}: a float32 copy was measured."


def check_tensors(batch: Any, named: list[tuple[str, Tensor]]) -> None:
    """Refuse a batch without tensors, or with NaN or infinity among them."""
    if not named:
        kind = type(batch).__name__
        hint = "; torch.from_numpy makes one of an array" if kind == "ndarray" else ""
        raise InputError(f"the batch holds no tensor: it is a {kind}{hint}. Give what the model is called with.")
    for name, tensor in named:
        title = "the input" if name == "input" else f"'{name}'"
        check_dense(title, tensor)
        if "mask" not in name or bool(tensor.isnan().any()):  # a mask added to scores may hold -infinity
            check_finite(f"{title} {tuple(tensor.shape)}", tensor)


def examples_in(batch: Any, targets: Any, named: list[tuple[str, Tensor]]) -> int:
    """How many examples a batch holds: the rows of its first tensor; of a graph of its targets, else its graphs."""
    graph = any("edge_index" in name for name, _ in named)
    if isinstance(batch, PackedSequence):
        return int(batch.batch_sizes[0])
    if graph and isinstance(targets, Tensor) and targets.dim():
        return len(targets)
    if graph and isinstance(graphs := getattr(batch, "num_graphs", None), int) and graphs > 1:
        return graphs
    name, first = next(((n, t) for n, t in named if t.dim()), named[0])
    several = isinstance(targets, Tensor) and targets.dim() and first.dim() and len(first) != len(targets)
    if several and (len(targets) == len(named) or _second(batch, targets)):
        return len(targets)  # a list of images, say, of different sizes
    if first.dim() == 0 or first.numel() == 0:
        text = f"{'the input' if name == 'input' else repr(name)} has shape {tuple(first.shape)}"
        raise InputError(f"{text}: an empty batch; give at least one example, shape (examples, ...).")
    return len(first)


def _divisible(value: Any, examples: int) -> bool:
    """Whether some of the examples can be taken out of a nest; numbers and single rows are shared by all of them."""
    if isinstance(value, Tensor):
        return value.dim() == 0 or len(value) in (1, examples)
    if isinstance(value, PackedSequence):
        return False
    if isinstance(value, tuple | list | Mapping):
        return all(_divisible(v, examples) for v in (value.values() if isinstance(value, Mapping) else value))
    return value is None or isinstance(value, bool | int | float | str)


def _tensors(value: Any, inside: bool = False) -> list[Tensor]:
    """All tensors of a batch or of what a model returned, in order; of an object inside an object none."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list | Mapping):
        return [t for v in (value.values() if isinstance(value, Mapping) else value) for t in _tensors(v, inside)]
    return [] if inside else [t for v in _attributes(value).values() for t in _tensors(v, True)]


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object that holds tensors; of a torch_geometric graph its stores' values."""
    if _is_graph(value) and callable(to_dict := getattr(value, "to_dict", None)):
        return dict(to_dict())
    return {} if isinstance(value, nn.Module | type) or callable(value) else dict(getattr(value, "__dict__", {}))


def _is_graph(value: Any) -> bool:
    try:
        return not isinstance(value, Mapping) and hasattr(value, "x") and hasattr(value, "edge_index")
    except Exception:  # of an object's own __getattr__
        return False


def _has_step(model: nn.Module) -> bool:
    return callable(getattr(model, "training_step", None)) and bool(getattr(model, "automatic_optimization", True))


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
