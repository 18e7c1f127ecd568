"""Where each weight lives in a model: modules, attributes, and the name it had before anything masked it."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from epoch0.prune._masked import Masked
from epoch0.prune._prunable import uncompiled
from epoch0.tracing.guard import bare


@dataclass(frozen=True, eq=False)
class Place:
    """One attribute of one module that is a weight.

    Attributes:
        module: whose attribute it is.
        path: of the module in the model.
        attribute: name of the weight in it.
        parameter: what an optimizer holds; behind a parametrization the (first) original.
        mask: of our parametrizations together, or of ``torch.nn.utils.prune``; None if it is not masked.
        by_torch: whether the mask is one of ``torch.nn.utils.prune``.
    """

    module: nn.Module
    path: str
    attribute: str
    parameter: nn.Parameter
    mask: Tensor | None = None
    by_torch: bool = False

    @property
    def name(self) -> str:
        """Its name in the model before it was masked."""
        return uncompiled(f"{self.path}.{self.attribute}" if self.path else self.attribute)


def places(model: nn.Module) -> dict[str, list[Place]]:
    """Every parameter of a model, under the name that it had when nothing was masked, and all places it is used in.

    >>> {name: len(where) for name, where in places(model).items()}     # tied weights: one name, two places
    {'embedding.weight': 2, 'body.weight': 1, 'body.bias': 1}

    The order is that of ``model.named_parameters()`` before the model was masked, and so is the name of a parameter in
    several places: the first one.

    Args:
        model: pruned or not; a wrapper such as a compiled model is looked through.
    """
    found: dict[int, list[Place]] = {}
    for path, module in bare(model).named_modules():
        if isinstance(module, ParametrizationList) or path.rpartition(".")[2] == "parametrizations":
            continue
        for place in _of_module(path, module):
            found.setdefault(id(place.parameter), []).append(place)
    return {where[0].name: where for where in found.values()}


def parametrization(module: nn.Module, attribute: str) -> ParametrizationList | None:
    """The list of parametrizations of one attribute, if it has any."""
    if not is_parametrized(module, attribute):
        return None
    return cast(ParametrizationList, cast(nn.ModuleDict, module.parametrizations)[attribute])


def _of_module(path: str, module: nn.Module) -> list[Place]:
    seen = []
    if is_parametrized(module):
        for attribute in cast(nn.ModuleDict, module.parametrizations):
            row = parametrization(module, attribute)
            assert row is not None
            original = row.original if row.is_tensor else row.original0
            if isinstance(original, nn.Parameter):
                masks = [step.mask for step in row if isinstance(step, Masked)]
                mask = None
                for one in masks:
                    mask = one if mask is None else mask & one
                seen.append(Place(module, path, attribute, original, mask))
    for stored, parameter in module._parameters.items():
        if parameter is None:
            continue
        attribute = stored.removesuffix("_orig")
        mask = module._buffers.get(f"{attribute}_mask") if stored != attribute else None
        if mask is None:
            seen.append(Place(module, path, stored, parameter))
        else:
            seen.append(Place(module, path, attribute, parameter, mask != 0, by_torch=True))
    return sorted(seen, key=lambda place: _rank(module, place))


def parameter_order(module: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of a module as they stood before anything masked them."""
    if is_parametrized(module):
        for row in cast(nn.ModuleDict, module.parametrizations).values():
            for step in cast(ParametrizationList, row):
                if isinstance(step, Masked):
                    return step.order
    return tuple(module._parameters)


def _rank(module: nn.Module, place: Place) -> int:
    if place.by_torch:  # torch moves it to the end; a weight comes before the bias
        return -1
    order = parameter_order(module)
    return order.index(place.attribute) if place.attribute in order else 0
