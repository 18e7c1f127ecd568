"""Scores of weights: what all share, batches and the model as a function, too; magnitude and chance (Hayou 2021, 2)."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_pre_hook

from epoch0.arguments import Seed, checked, refuse
from epoch0.errors import InputError, check_finite, first_line, reworded
from epoch0.initialization.files import Tensors
from epoch0.progress import Progress
from epoch0.prune.masks.places import Place, standing
from epoch0.results import Result, aligned, counted
from epoch0.seeds import generator
from epoch0.tracing import operations
from epoch0.tracing.call import LABELS, Call, Forward, asked, check_tensors, described, examples_in, mapped, parts
from epoch0.tracing.guard import bare, check_model, same_noise, streams_kept, unchanged
from epoch0.tracing.loss import Loss, check_targets

Values = list[Tensor]
"""A tensor for each weight."""

MOST = 10**4  # batches: an iterable may have no end

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # what can be compared and summed
_CHANCE = 5  # names the random stream


@checked
class Scores(dict[str, Tensor], Result):
    """One number for each weight of a model; the larger, the more worth keeping.

    >>> scores = Scores({"fc.weight": torch.tensor([[0.1, 0.9], [0.5, 0.2]])}, "by hand")
    >>> scores.weights, scores.method                               # shape (2, 2)
    (4, 'by hand')

    A dict from the names of parameters to tensors of their shapes. A weight that is already removed from the model
    scores 0 and stands in ``removed``: nothing may bring it back, and it counts as removed at every sparsity.

    Args:
        method: how they came about, in a few words.
        removed: name -> bool tensor, True where the weight is already removed; names may be missing.

    Raises:
        InputError: if a score is no floating-point tensor, is not finite, or ``removed`` does not fit.
    """

    def __init__(self, scores: Tensors, method: str = "", removed: Tensors | None = None) -> None:
        super().__init__(scores)
        self.method = method
        if not self:
            raise InputError("there are no scores; give at least one weight's.")
        for name, score in self.items():
            if score.dtype not in FLOATS or score.numel() == 0:
                kind = f"{score.dtype}, shape {tuple(score.shape)}"
                raise InputError(f"the scores of '{name}' must be a floating-point tensor with entries, not {kind}.")
            check_finite(f"the scores of '{name}'", score)
        for name, gone in (removed or {}).items():
            if name not in self or gone.shape != self[name].shape or gone.dtype != torch.bool:
                raise InputError(f"the removed weights of '{name}' must be a bool tensor of the shape of its scores.")
        self.removed = {name: gone for name, gone in (removed or {}).items() if bool(gone.any())}

    @property
    def weights(self) -> int:
        """How many are scored, removed ones included."""
        return sum(score.numel() for score in self.values())

    def rows(self) -> list[dict[str, str | int | float]]:
        """One row a weight tensor: ``name``, ``weights``, ``removed``, ``mean``, ``mean_square`` (m_l), ``largest``,
        ``zeros`` (fraction of the scores that are exactly 0, removed weights apart).
        """
        found: list[dict[str, str | int | float]] = []
        for name, score in self.items():
            gone = int(self.removed[name].sum()) if name in self.removed else 0
            left, exact = max(score.numel() - gone, 1), score.double()
            row: dict[str, str | int | float] = {"name": name, "weights": score.numel(), "removed": gone}
            row |= {"mean": float(exact.sum()) / left, "mean_square": float(exact.square().sum()) / left}
            found.append({**row, "largest": float(exact.max()), "zeros": (int((score == 0).sum()) - gone) / left})
        return found

    def __str__(self) -> str:
        lines = [["weights of", "count", "removed", "mean", "mean square", "largest", "zeros"]]
        for row in self.rows():
            *counts, zeros = row.values()
            numbers = [str(value) if isinstance(value, str | int) else f"{value:.3g}" for value in counts]
            lines.append([*numbers, f"{zeros:.1%}"])
        summary = f"scores of {counted(self.weights, 'weight')} in {counted(len(self), 'tensor')}"
        return "\n".join([f"{summary}: {self.method}" if self.method else summary, *aligned(lines)])


class Listed(NamedTuple):
    """A score as ``prune`` exports it and the command line calls it."""

    function: Callable[..., Scores]
    takes: tuple[str, ...]  # the names of its arguments; one that takes steps does all of them in one call
    rounds: int  # of scores that its authors repeat


TABLE: dict[str, Listed] = {}
_Score = TypeVar("_Score", bound=Callable[..., Scores])


def score(rounds: int = 1) -> Callable[[_Score], _Score]:
    """What makes a function a score of ours, by its own name. Of ``seed``, ``batches``, ``batch_norm``, ``x``,
    ``sparsity``, ``steps`` and ``progress`` the command line gives it those that it takes.
    """

    def enter(function: _Score) -> _Score:
        TABLE[function.__name__] = Listed(function, tuple(inspect.signature(function).parameters), rounds)
        return function

    return enter


def check_precision(model: nn.Module) -> None:
    """Refuse a model that scores cannot be computed with."""
    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16):
            text = f"'{name}' is {parameter.dtype}, in which gradients underflow and many weights are equal"
            raise InputError(f"{text}; score copy.deepcopy(model).float(): masks from its scores fit this model too.")
    check_model(model)


def tell(progress: Progress, done: int, rounds: int) -> None:
    """Report that ``done`` rounds are done and another begins."""
    if progress is not None:
        progress(done / rounds, f"round {done + 1} of {rounds}")


def scores_of(weights: Sequence[Place], values: Sequence[Tensor], method: str) -> Scores:
    """Scores of the weights of a model, with 0 for those that are already removed."""
    gone = {w.name: ~w.mask for w in weights if w.mask is not None}
    found = {w.name: value.detach() for w, value in zip(weights, values, strict=True)}
    return Scores(found | {name: found[name].masked_fill(removed, 0.0) for name, removed in gone.items()}, method, gone)


@score()
@checked
def magnitude(model: nn.Module) -> Scores:
    """Score each weight by its absolute value, abs(W), in its own dtype.

    >>> magnitude(net)["0.weight"].shape                            # net: 64-32-32-10; of each weight's own shape
    torch.Size([32, 64])

    With Kaiming or mean-field weights a layer's scale is 1/sqrt(fan_in), so a global threshold empties wide ones first.

    Scored are the weights of :func:`epoch0.prune.masks.places.standing`.

    Source: Hayou et al. 2021, sections 2.1 (MBP) and E.
    """
    check_precision(model)
    weights = standing(model)
    return scores_of(weights, [w.parameter.detach().abs() for w in weights], "magnitude")


@score()
@checked
def random(model: nn.Module, seed: Seed = 0) -> Scores:
    """Score each weight by chance: independent uniform numbers in (0, 1), float64.

    >>> random(net, seed=0)["0.weight"].shape                       # net: 64-32-32-10; of each weight's own shape
    torch.Size([32, 64])

    The scores of a weight depend on the seed and the weight's place among the weights alone.

    Source: Hayou et al. 2021, Tables 2 and 3 (random pruning).
    """
    check_precision(model)
    weights, drawn = standing(model), []
    for place, w in enumerate(weights):
        uniform = torch.rand(w.parameter.shape, dtype=torch.float64, generator=generator(seed, _CHANCE, place))
        drawn.append(uniform.to(w.parameter.device))
    return scores_of(weights, drawn, f"random, seed {seed}")


class Batch(NamedTuple):
    """Inputs and targets of a loss."""

    inputs: Any  # as the model is called with them
    targets: Any  # None: labels are among the inputs
    examples: int


@streams_kept()
@torch.inference_mode(False)  # in which gradients can be taken with what is cloned
def taken(batches: Iterable[Any], loss: Loss | None) -> list[Batch]:
    """The batches as pairs; torch's global random state is restored after the loader."""
    pair = isinstance(batches, tuple) and len(batches) == 2 and all(isinstance(part, Tensor) for part in batches)
    if pair or _labelled(batches):
        batches = [batches]
    if isinstance(batches, Tensor | dict):
        raise refuse("batches", batches, "pairs (inputs, targets), such as [(inputs, targets)]")
    found = []
    for place, batch in enumerate(batches):
        both = (batch, None) if _labelled(batch) else batch
        if not isinstance(both, tuple | list) or len(both) != 2 or not (tensors := parts(both[0])):
            kinds = ", ".join(type(part).__name__ for part in both) if isinstance(both, tuple | list) else ""
            kind = f"{type(both).__name__} of ({kinds})" if kinds else type(both).__name__
            known = "a pair (inputs, targets), inputs what the model is called with, a mapping with labels"
            raise InputError(f"batch {place} is a {kind}; each must be {known}, or (inputs, None).")
        x, targets = both
        if targets is None and loss is not None:
            raise InputError(f"batch {place} has no targets; the loss needs them.")
        try:
            check_tensors(x, tensors)
            count = examples_in(x, targets, tensors)
            check_targets(count if isinstance(x, Tensor) else None, targets)
        except InputError as problem:
            raise InputError(f"batch {place}: {problem}") from problem
        if place == MOST:
            raise InputError(f"there are more than {MOST:,} batches, and all are kept meanwhile; give fewer.")
        found.append(Batch(mapped(x, _usable), mapped(targets, _usable), count))
    if not found:
        raise InputError("there are no batches: the iterable is empty (or was used up by an earlier loop).")
    return found


def examples(batches: Sequence[Batch]) -> int:
    return sum(batch.examples for batch in batches)


def _labelled(batch: Any) -> bool:
    return isinstance(batch, Mapping) and any(batch.get(key) is not None for key in LABELS)


def _usable(tensor: Tensor) -> Tensor:
    return (tensor.clone() if tensor.is_inference() else tensor).detach()


@dataclass(frozen=True, eq=False)
class Functional:
    """A functional copy of a model: its weights are separate leaves of the graph."""

    model: nn.Module  #: in eval mode
    weights: list[Place]  #: the prunable ones
    keys: list[str]  #: their names in the model as it is
    #: a tensor for each of them that gradients are taken at, shared with the parameter where the dtype is
    leaves: list[Tensor]
    others: dict[str, Tensor]  #: every other parameter and buffer by its key; buffers are copies
    forward: Forward | None  #: the way of calling the model that was given
    batch_norm: str  #: ``"train"`` or ``"eval"``
    dtype: torch.dtype  #: of all floating-point tensors
    twice: bool = False  #: whether what is computed will be differentiated twice
    running: list[bool] = field(default_factory=list)  #: holds something while the model may run
    reached: set[int] = field(default_factory=set)  #: numbers of the weights on which something depended

    @property
    def kept(self) -> list[Tensor]:
        """For each weight where the masks that stand on it are true."""
        pairs = zip(self.leaves, self.weights, strict=True)
        return [torch.ones_like(leaf, dtype=torch.bool) if w.mask is None else w.mask for leaf, w in pairs]

    def output(self, x: Any, mode: operations.Calls | None = None, targets: Any = None) -> Tensor:
        """THE output of the model for inputs, with these weights."""
        return self._run(self._call(x, targets), mode)[1]

    def _call(self, x: Any, targets: Any = None, loss: Loss | None = None) -> Call:
        device = self.leaves[0].device

        def ours(tensor: Tensor) -> Tensor:  # cloned: the model may change its input in place
            return tensor.to(device, self.dtype if tensor.is_floating_point() else tensor.dtype).clone()

        targets = mapped(targets, lambda t: t.to(device))
        asks = asked(self.model, x, targets) if loss is None and self.forward is None else None
        return Call(self.model, mapped(x, ours), targets, 1, False, (), loss, self.forward, asks)

    def _run(self, call: Call, mode: operations.Calls | None = None) -> tuple[Any, Tensor]:
        """All that the model returns, and the output among it."""
        same_noise()
        self.running.append(True)
        text = f"the model fails on {described(call.batch).replace('an input', 'inputs')}"
        # fused attention has no second derivative
        fused = sdpa_kernel(SDPBackend.MATH) if self.twice else nullcontext()
        failed = reworded(lambda error: InputError(f"{text}: {type(error).__name__}: {first_line(error)}"))
        try:
            with failed, fused, mode or operations.Calls(self.batch_norm):
                raw = call.swapped({**self.others, **dict(zip(self.keys, self.leaves, strict=True))})
                output = call.output(raw)
        finally:
            self.running.clear()
        if not output.requires_grad:
            raise InputError("the output does not depend on any weight of the model (is it detached on the way?).")
        return raw, output

    def loss(self, batch: Batch, loss: Loss | None, temperature: float = 1.0) -> Tensor:
        """The loss of a batch, of outputs divided by the temperature; a scalar."""
        call = self._call(batch.inputs, batch.targets, loss)
        raw, _ = self._run(call)
        if temperature != 1.0 and batch.targets is not None:
            raw = mapped(raw, lambda t: t / temperature if t.is_floating_point() else t)
        value = call.loss(raw)
        if temperature != 1.0 and batch.targets is None:
            raise InputError(f"temperature={temperature} divides outputs before the loss; the model's own needs 1.")
        return value

    def gradients(self, batches: Sequence[Batch], loss: Loss | None, temperature: float = 1.0) -> Values:
        """The gradient of the mean loss over all examples of all batches."""
        total, everything = Values(), examples(batches)
        for batch in batches:
            total = added(total, self.differentiated(self.loss(batch, loss, temperature)), batch.examples / everything)
        return total

    def differentiated(self, value: Tensor, push: Tensor | None = None, **options: bool) -> Values:
        """The gradient of a value, or its product with a cotangent, at the leaves."""
        try:
            found = torch.autograd.grad(value, self.leaves, push, allow_unused=True, **options)
        except RuntimeError as error:
            raise InputError(f"the model has no {'second ' * self.twice}derivative: {first_line(error)}") from error
        self.reached.update(place for place, gradient in enumerate(found) if gradient is not None)
        return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(self.leaves, found, strict=True)]

    def near_the_end(self, values: Values, *, zeros: bool = True) -> bool:
        """Whether the largest of a reached tensor (with ``zeros=False`` not of one that is zero) nears underflow."""
        held = [v for place, v in enumerate(values) if place in self.reached and (zeros or bool(v.any()))]
        found = ((float(v.abs().max()), torch.finfo(v.dtype)) for v in held)
        return any(largest < numbers.tiny / numbers.eps for largest, numbers in found)

    def times(self, values: Values) -> Values:
        """The values times the weights, in place."""
        with torch.no_grad():
            return [value.mul_(w) for w, value in zip(self.leaves, values, strict=True)]

    def warn_of_unused(self) -> None:
        """Name the weights that the loss does not depend on."""
        unused = [w.name for place, w in enumerate(self.weights) if place not in self.reached]
        if len(unused) == len(self.weights):
            raise InputError("the loss does not depend on any weight of the model.")
        if unused:
            shown = ", ".join(f"'{name}'" for name in unused[:5]) + (" and others" if len(unused) > 5 else "")
            text = f"the loss does not depend on {shown}: those weights score 0 and are removed first"
            warnings.warn(f"{text}. Leave them out of the scores to keep them.", stacklevel=5)


def added(total: Values, more: Values, share: float) -> Values:
    """The sum total + share * more, tensor by tensor and in place; an empty total is zero."""
    scaled = [value if share == 1.0 else value.mul_(share) for value in more]
    return [a.add_(b) for a, b in zip(total, scaled, strict=True)] if total else scaled


Compute = Callable[[Functional, list[Batch]], tuple[Values, bool]]  # scores, and whether they near the end of a range


@contextmanager
def functional_copy(
    model: nn.Module, batch_norm: str, dtype: torch.dtype | None, twice: bool = False, forward: Forward | None = None
) -> Iterator[Functional]:
    """Check the model and yield a functional copy; afterwards the model and the global random states are restored."""
    check_precision(model)
    model = bare(model)
    with unchanged(model), torch.inference_mode(False), torch.enable_grad():
        model.eval()
        weights = standing(model)
        dtype = dtype or weights[0].parameter.dtype
        leaves = [_cast(w.parameter, dtype).requires_grad_() for w in weights]
        names = {id(p): key for key, p in model.named_parameters()}
        keys = [names.pop(id(w.parameter)) for w in weights]
        others = {key: _cast(p, dtype) for key, p in model.named_parameters() if id(p) in names}
        others |= {key: _cast(b, dtype).clone() for key, b in model.named_buffers()}
        net = Functional(model, weights, keys, leaves, others, forward, batch_norm, dtype, twice)
        modules = {id(module): module for module in model.modules()}

        def refuse_again(module: nn.Module, inputs: object) -> None:
            if id(module) in modules and not net.running:  # on the model's own weights, not on the leaves
                text = f"the model runs its {type(module).__name__} again in the backward pass"
                raise InputError(f"{text} (activation checkpointing), without scores; switch that off.")

        with torch.autocast(leaves[0].device.type, enabled=False), ExitStack() as after:
            # compiled parts are traced without such hooks, and torch warns of them
            compiled = ("_orig_mod", "_compiled_call_impl")
            if not any(getattr(module, name, None) is not None for module in modules.values() for name in compiled):
                after.callback(register_module_forward_pre_hook(refuse_again).remove)
            yield net


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return _usable(tensor).to(dtype if tensor.is_floating_point() else tensor.dtype)


def scored(
    method: str, compute: Compute, model: nn.Module, batches: Iterable[Any], loss: Loss | None, **options: Any
) -> Scores:
    """Scores that a function computes on a functional copy and batches, in a precision that holds them."""
    held = taken(batches, loss)
    for dtype in (None, torch.float64):
        with functional_copy(model, dtype=dtype, **options) as net:
            values, near = compute(net, held)
            if near and net.dtype != torch.float64:
                continue
            words = f"{method}, {len(held)} batch{'es' if len(held) > 1 else ''}, {counted(examples(held), 'example')}"
            words += f", batch norm {net.batch_norm}, {str(net.dtype).removeprefix('torch.')}"
            net.warn_of_unused()
            return scores_of(net.weights, values, words)
    raise AssertionError("float64 is the last that is tried")
