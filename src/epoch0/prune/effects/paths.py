"""What masks leave: kept weights, dead layers, and weights that lie on no path (Vysogorets & Kempe 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.prune.effects.reach import Reach
from epoch0.prune.masks.apply import check_masks
from epoch0.prune.masks.masks import Masks
from epoch0.results import Result, aligned, first_names
from epoch0.tracing.guard import bare, unchanged
from epoch0.tracing.operations import tensors_in
from epoch0.tracing.tape import prepare_forward_derivatives


@checked
def on_paths(model: nn.Module, masks: Mapping[str, Tensor], x: Tensor | tuple[int, ...]) -> Masks:
    """The weights that are kept and lie on a path of kept weights from the input to the output.

    >>> effective = on_paths(model, masks, x=(64,))               # the shape of one example
    >>> effective.kept <= masks.kept, effective.sparsity >= masks.sparsity
    (True, True)

    A path goes through weights that are kept, through sums, products, nonlinearities and whatever moves entries; the
    signal it carries is that of the input. So a unit without inputs starts no path even if it has a bias, and the
    statistics of norms and the denominators of a softmax are no paths. Where two signals are multiplied, either one
    passes where the other is not always zero. Parameters without a mask count as kept. This is exact entry by entry,
    at every place of an image: a weight of a convolution that only ever meets padding is on no path, so the shape of
    the input matters. Rows of an embedding count as input. It takes one pass forward and one backward, with zeros and
    ones: nothing overflows.

    Args:
        model: what the masks are for; if it is pruned already, its own masks count too. It stays as it is.
        x: a batch of shape (examples, ...), of which only the shape counts (and integers, such as tokens, of the first
            example), or the shape of one example.

    Raises:
        InputError: if the masks are another model's, the model does not take such inputs, or an operation has no rule.

    Source: Vysogorets & Kempe 2023, effective sparsity.
    """
    model = bare(model)
    where = check_masks(model, masks)
    homes = {id(where[name][0].parameter): name for name in masks}
    prepare_forward_derivatives()
    with unchanged(model), forward_ad.dual_level():
        model.eval()
        seen: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}
        for key, parameter in model.named_parameters():
            if id(parameter) in homes:
                name = homes[id(parameter)]
                values[key] = seen[name] = masks[name].to(parameter.device, torch.float32).requires_grad_()
            elif parameter.is_floating_point():
                values[key] = torch.ones_like(parameter, dtype=torch.float32, requires_grad=False)
        for key, buffer in model.named_buffers():
            if buffer.is_floating_point():
                values[key] = (buffer != 0).float()
        start = _start(x, next(model.parameters()).device)
        with torch.enable_grad():
            try:
                with Reach():
                    result = functional_call(model, values, (start,))
            except InputError:
                raise
            except Exception as error:
                raise InputError(
                    f"the paths of {type(model).__name__} cannot be followed for an input of shape "
                    f"{tuple(start.shape)}: {error}"
                ) from error
        nest = result.to_tuple() if hasattr(result, "to_tuple") else result
        outputs = [out for out in tensors_in(nest) if out.is_floating_point() and out.requires_grad]
        ones = [torch.ones_like(out) for out in outputs]
    gradients = torch.autograd.grad(outputs, list(seen.values()), ones, allow_unused=True) if outputs else ()
    pairs = zip(seen, gradients, strict=False)
    reached = {name: masks[name] & (g > 0).to(masks[name].device) for name, g in pairs if g is not None}
    return Masks._own({name: torch.zeros_like(mask) for name, mask in masks.items()} | reached)


def _start(x: Tensor | tuple[int, ...], device: torch.device) -> Tensor:
    """One example of ones that depend on the input; or the first example, where it is made of integers."""
    shape = x.shape[1:] if isinstance(x, Tensor) else tuple(x)
    if isinstance(x, Tensor) and x.dim() and not x.is_floating_point():
        return x[:1].to(device)
    if not all(isinstance(n, int) and n > 0 for n in shape):
        raise InputError(f"x={tuple(shape)}: an example needs a shape such as (3, 32, 32), all integers > 0.")
    ones = torch.ones(1, *shape, device=device)
    start: Tensor = forward_ad.make_dual(ones, torch.ones_like(ones))
    return start


@dataclass(frozen=True)
class LayerMask:
    """What is left of one weight."""

    name: str  #: of the weight
    shape: tuple[int, ...]  #: of the weight; a row is an index of its first dimension, a column one of its second
    weights: int  #: how many it has
    kept: int  #: how many of them are kept
    effective: int | None  #: how many of those lie on a path from input to output; None without a model
    density: float  #: fraction kept
    dead_rows: int  #: units or output channels of which no weight is kept (inputs, for a transposed convolution)
    dead_columns: int  #: inputs or input channels of a group that meet no weight that is kept; 0 for a vector
    status: str  #: in words


@dataclass(frozen=True)
class MaskSummary(Result):
    """What a set of masks leaves."""

    layers: tuple[LayerMask, ...]  #: one row a weight, in the order of the masks
    total: int  #: weights
    kept: int  #: weights kept
    effective: int | None  #: those of them that lie on a path from input to output; None without a model

    @property
    def sparsity(self) -> float:
        return 1.0 - self.kept / max(self.total, 1)

    @property
    def effective_sparsity(self) -> float | None:
        """Fraction that is removed or lies on no path; None without a model."""
        return None if self.effective is None else 1.0 - self.effective / max(self.total, 1)

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of the layers of which nothing is kept."""
        return tuple(layer.name for layer in self.layers if layer.kept == 0)

    @property
    def verdict(self) -> str:
        """What a reader must know, in one line."""
        if self.effective == 0:
            return "no path leads from the input to the output: the model computes a constant"
        if self.dead:
            return f"{len(self.dead)} of {len(self.layers)} layers are dead: {first_names(self.dead)}"
        idle = [layer.name for layer in self.layers if layer.effective == 0]
        if idle:
            return f"no path goes through {first_names(idle)}"
        return "every layer keeps weights" if self.effective is None else "every layer lies on a path"

    def __str__(self) -> str:
        first = f"{self.kept:,} of {self.total:,} weights kept, sparsity {self.sparsity:.4%}"
        if self.effective is not None:
            first += f"; {self.effective:,} on a path, effective sparsity {self.effective_sparsity:.4%}"
        return "\n".join([first, self.verdict, *aligned([_HEAD, *map(_cells, self.layers)])])

    def to_dict(self) -> dict[str, Any]:
        names = ("total", "kept", "sparsity", "effective", "effective_sparsity", "dead", "verdict")
        layers = [{**row, "shape": list(row["shape"])} for row in self.rows()]
        return {name: getattr(self, name) for name in names} | {"dead": list(self.dead), "layers": layers}


@checked
def summary(masks: Masks, model: nn.Module | None = None, x: Tensor | tuple[int, ...] | None = None) -> MaskSummary:
    """Kept weights, dead layers, rows and columns, and with the model the weights that lie on no path.

    >>> print(masks.summary(model, x=(64,)))                # shape of one example, or a batch
    1,696 of 3,392 weights kept, sparsity 50.0000%; 1,696 on a path, effective sparsity 50.0000%
    every layer lies on a path
    weights   shape  kept  of     density  effective  dead rows  dead columns  status
    0.weight  32x64  913   2,048  0.4458   913        0          0             ok
    2.weight  32x32  595   1,024  0.5811   595        0          0             ok
    4.weight  10x32  188   320    0.5875   188        0          0             ok

    Source: Vysogorets & Kempe 2023 for the effective sparsity.
    """
    if (model is None) != (x is None):
        missing = "the shape of one example, x=(3, 32, 32)," if x is None else "the model"
        raise InputError(f"the effective sparsity needs {missing} too; without both, summary() leaves it out.")
    effective = None if model is None or x is None else on_paths(model, masks, x)
    layers = tuple(_layer(name, mask, None if effective is None else effective[name]) for name, mask in masks.items())
    return MaskSummary(layers, masks.total, masks.kept, None if effective is None else effective.kept)


Masks.summary = summary


def _layer(name: str, mask: Tensor, on_path: Tensor | None) -> LayerMask:
    kept, effective = int(mask.count_nonzero()), None if on_path is None else int(on_path.count_nonzero())
    along = [mask.movedim(axis, 0).reshape(mask.shape[axis], -1) for axis in range(min(mask.dim(), 2))]
    rows, columns = ([int((~one.any(1)).sum()) for one in along] + [0, 0])[:2]
    if kept == 0:
        status = "dead: nothing is kept"
    elif effective == 0:
        status = "idle: no path goes through it"
    elif effective is not None and effective < kept:
        status = f"{kept - effective} kept weights on no path"
    else:
        status = "ok"
    return LayerMask(name, tuple(mask.shape), mask.numel(), kept, effective, kept / max(mask.numel(), 1), rows, columns,
                     status)  # fmt: skip


_HEAD = ("weights", "shape", "kept", "of", "density", "effective", "dead rows", "dead columns", "status")


def _cells(layer: LayerMask) -> tuple[str, ...]:
    counts = ("x".join(map(str, layer.shape)), f"{layer.kept:,}", f"{layer.weights:,}", f"{layer.density:.4g}")
    effective = "-" if layer.effective is None else f"{layer.effective:,}"
    return (layer.name, *counts, effective, str(layer.dead_rows), str(layer.dead_columns), layer.status)
