"""Parameters that can be pruned, their modules, and the parametrization that masks them (Hayou et al. 2021, 2.1)."""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from epoch0.errors import InputError
from epoch0.tracing.guard import bare, refuse_closed


class Masked(nn.Module):
    """A parametrization for ``torch.nn.utils.parametrize``: the weight where the mask is true, zero elsewhere.

    The gradient of a pruned weight is zero too, not a product with zero: infinite gradients under a loss scaler leave
    no NaN there. Whatever an optimizer does to the parameter, the module computes with an exact zero.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, order: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.order = order

    def forward(self, weight: Tensor) -> Tensor:
        # the same selection by an operation that is not slow on booleans; flat, as gradients of matrices in a stack
        # come transposed, which it is slow on
        flat, mask = (each.flatten() if each.dim() == 2 else each for each in (weight, self.mask))
        kept = mask.to(torch.uint8).to(weight.dtype)  # view has no rule for stacks before torch 2.13
        return cast(Tensor, torch.ops.aten.threshold_backward(flat, kept, 0.5)).view(weight.shape)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The value stored when the masked weight is assigned: all of it, the mask stays."""
        return weight

    def extra_repr(self) -> str:
        return f"{int(self.mask.count_nonzero())} of {self.mask.numel()} kept"


@dataclass(frozen=True, eq=False)
class Place:
    """One attribute of one module that is a weight."""

    name: str  #: its name in the model before it was masked, ``"conv1.weight"``
    module: nn.Module  #: whose attribute it is
    attribute: str  #: name of the weight in it
    parameter: nn.Parameter  #: what an optimizer holds; behind a parametrization the (first) original
    mask: Tensor | None = None  #: True where the weight is kept; None where nothing masks it
    by_torch: bool = False  #: whether the mask is one of ``torch.nn.utils.prune``

    @property
    def row(self) -> ParametrizationList | None:
        """Its parametrizations, if it has any."""
        return _parametrizations(self.module).get(self.attribute)

    @property
    def steps(self) -> list[nn.Module]:
        return list(self.row or ())


def standing(model: nn.Module) -> list[Place]:
    """The weights that can be pruned, each in its first place with all masks that stand on it.

    These are the floating-point parameters of two or more dimensions of linear maps, convolutions, attention, recurrent
    layers and modules of your own. Not biases, norms and embeddings, nor a parameter of your own module that is named a
    bias or has three or more dimensions of which the first is 1 (a class token, a position embedding). A parameter in
    several modules is there once, under its first name; so is one behind a mask (ours or that of
    ``torch.nn.utils.prune``), under the name it had before.
    """
    found = []
    for name, where in places(model).items():
        if (place := next((place for place in where if _is_weight(place)), None)) is not None:
            found.append(replace(place, name=name, mask=_mask_on(place)))
    if not found:
        raise InputError(f"{type(model).__name__} has no weight that can be pruned, as a Linear or Conv2d has.")
    return found


def plain_name(name: str) -> str:
    """The name that a parameter had before it was parametrized or pruned, or a module around it compiled."""
    name = _uncompiled(name)
    module, _, rest = name.rpartition("parametrizations.")
    if rest.endswith(".original") and (not module or module.endswith(".")):
        return module + rest.removesuffix(".original")
    return name.removesuffix("_orig")


def _uncompiled(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _is_weight(place: Place) -> bool:
    module, name, parameter = place.module, place.attribute, place.parameter
    kind = type(module).__mro__[1] if is_parametrized(module) else type(module)  # a parametrized one has its own class
    matrix = issubclass(kind, (nn.Linear, nn.Bilinear, _ConvNd, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase))
    torchs = kind.__module__.startswith("torch.nn.") and not issubclass(kind, (nn.ParameterList, nn.ParameterDict))
    if not matrix and (torchs or issubclass(kind, (nn.Embedding, nn.EmbeddingBag)) or "Norm" in kind.__name__):
        return False
    if not parameter.is_floating_point() or parameter.dim() < 2 or "bias" in name:
        return False
    if matrix and name.endswith(("_g", "_v")):
        raise _computed(place.name[:-2], "weight_norm")
    return matrix or not (parameter.dim() > 2 and parameter.shape[0] == 1)


def _mask_on(place: Place) -> Tensor | None:
    if not (steps := place.steps):
        return place.mask
    masks = [mask.bool() for step in steps if isinstance(mask := getattr(step, "mask", None), Tensor)]
    if len(masks) < len(steps):
        raise _computed(place.name, ", ".join(type(step).__name__ for step in steps))
    return torch.stack(masks).all(0)


def _computed(name: str, way: str) -> InputError:
    text = f"the weight '{name}' is computed from other parameters ({way}), so no entry of it can be pruned"
    ways = "torch.nn.utils.parametrize.remove_parametrizations, torch.nn.utils.remove_weight_norm"
    return InputError(f"{text}; make it plain first ({ways}).")


def places(model: nn.Module) -> dict[str, list[Place]]:
    """Every parameter of a model, under the name that it had when nothing was masked, and all places it is used in.

    The order is that of ``model.named_parameters()`` before the model was masked; of several names the first counts.
    """
    refuse_closed(bare(model))
    found: dict[int, list[Place]] = {}
    for path, module in bare(model).named_modules():
        if isinstance(module, ParametrizationList) or path.rpartition(".")[2] == "parametrizations":
            continue
        for place in _weights_of(path, module):
            found.setdefault(id(place.parameter), []).append(place)
    return {where[0].name: where for where in found.values()}


def _weights_of(path: str, module: nn.Module) -> list[Place]:
    seen, start = [], _uncompiled(f"{path}." if path else "")
    for attribute, row in _parametrizations(module).items():
        original = row.original if row.is_tensor else row.original0
        if isinstance(original, nn.Parameter):
            masks = [step.mask for step in row if isinstance(step, Masked)]
            mask = torch.stack(masks).all(0) if masks else None
            seen.append(Place(start + attribute, module, attribute, original, mask))
    for stored, parameter in module._parameters.items():
        if parameter is None:
            continue
        attribute = stored.removesuffix("_orig")
        mask = module._buffers.get(f"{attribute}_mask") if stored != attribute else None
        if mask is None:
            seen.append(Place(start + stored, module, stored, parameter))
        else:
            seen.append(Place(start + attribute, module, attribute, parameter, mask != 0, by_torch=True))
    rank = {name: number for number, name in enumerate(parameter_order(module))}
    # torch moves what it masks to the end; a weight comes before the bias
    return sorted(seen, key=lambda place: -1 if place.by_torch else rank.get(place.attribute, 0))


def parameter_order(module: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of a module as they stood before anything masked them."""
    steps = (step for row in _parametrizations(module).values() for step in row)
    return next((step.order for step in steps if isinstance(step, Masked)), tuple(module._parameters))


def _parametrizations(module: nn.Module) -> dict[str, ParametrizationList]:
    return dict(cast(Any, module.parametrizations).items()) if is_parametrized(module) else {}
