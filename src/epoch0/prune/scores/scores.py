"""Scores of weights: a dict of tensors that is shown; magnitude and chance (Hayou et al. 2021)."""

import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from epoch0.arguments import Seed, checked
from epoch0.errors import InputError, check_finite
from epoch0.initialization.files import Tensors
from epoch0.progress import Listener
from epoch0.prune.masks.places import Place, standing
from epoch0.results import Result, aligned, counted
from epoch0.seeds import generator
from epoch0.tracing.guard import check_model

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


def tell(progress: Listener | None, done: int, rounds: int) -> None:
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
