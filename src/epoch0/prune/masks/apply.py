"""Put masks on a model so that pruned weights stay zero, read them back, bake them in (Hayou et al. 2021, 2.1)."""

import copy
import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils import prune as torch_prune

from epoch0.arguments import checked
from epoch0.errors import InputError, suggest
from epoch0.interrupts import whole
from epoch0.prune.masks.masks import Masks
from epoch0.prune.masks.places import Masked, Place, parameter_order, places
from epoch0.results import first_names
from epoch0.tracing.guard import bare

Model = TypeVar("Model", bound=nn.Module)


@checked
@whole
def apply(model: Model, masks: Mapping[str, Tensor]) -> Model:
    """Prune a model: the masked weights are exactly zero from now on, whatever an optimizer does.

    >>> model = apply(model, keep(scores, sparsity=0.98))
    >>> model[0].weight.shape, int(model[0].weight.count_nonzero())      # the module computes with zeros
    (torch.Size([32, 64]), 9)

    Each weight gets a parametrization (``torch.nn.utils.parametrize``) that shows it through its mask. The parameter
    stays the same object, so an optimizer made before is still right, and its values under the mask stay too:
    ``model.conv1.parametrizations.weight.original``. Its gradient is zero where it is pruned. A checkpoint of a pruned
    model goes into a model pruned with any masks of the same weights, and brings its own masks; a whole-module
    ``torch.save`` does not work (docs/pruning).

    Masks are bool tensors by the name of a parameter, of its shape; parameters that are not named are left alone. What
    was pruned stays pruned, and a parameter that several modules share is masked in all of them.

    Raises:
        InputError: if the masks are another model's, or a weight cannot be masked. Nothing was changed then.

    Source: Hayou et al. 2021, section 2.1.
    """
    masks = masks if isinstance(masks, Masks) else Masks(masks)
    where = check_masks(model, masks)
    pairs = [(name, place) for name in masks for place in where[name]]
    for name, place in pairs:
        if place.by_torch:
            raise InputError(f"'{name}' is pruned by torch.nn.utils.prune: bake(model) or masks.to_torch_prune(model).")
    orders = {id(place.module): parameter_order(place.module) for _, place in pairs}
    fresh = dict[str, Masked]()  # one mask for all places of a shared weight, so that they cannot part
    with ExitStack() as undo:
        for name, place in pairs:
            mask = masks[name].to(place.parameter.device)
            if (ours := _ours(place)) is not None:
                undo.callback(setattr, ours, "mask", ours.mask)
                ours.mask = ours.mask & mask
                continue
            if name not in fresh:
                fresh[name] = Masked(mask.clone(), orders[id(place.module)])
            _own_class(place.module)
            parametrize.register_parametrization(place.module, place.attribute, fresh[name])
            undo.callback(_remove, place, fresh[name])
            _keep_copyable(place.module)
        undo.pop_all()  # nothing failed
    return model


@checked
@whole
def bake(model: Model) -> Model:
    """Make a pruned model plain again: the zeros go into the weights, the masks go away.

    >>> list(bake(apply(model, masks)).state_dict())            # the names of the model before it was pruned
    ['0.weight', '0.bias', '2.weight', '2.bias', '4.weight', '4.bias']

    The parameters stay the same objects, in their old order. From then on nothing holds the zeros in place: training
    moves them. Masks of ``torch.nn.utils.prune`` are baked in too. Another parametrization of a masked weight, such as
    a weight norm, is baked in with it. A model that is not pruned stays as it is.
    """
    for place in itertools.chain(*places(model).values()):
        if place.by_torch:
            torch_prune.remove(place.module, place.attribute)
        elif (ours := _ours(place)) is not None:
            if not (others := len(place.steps) > 1):
                with torch.no_grad():
                    place.parameter.masked_fill_(~ours.mask, 0.0)
            _remove(place, ours, baked=others)
    return model


@checked
@whole
def to_torch_prune(masks: Masks, model: Model) -> Model:
    """Put the masks on a model as those of ``torch.nn.utils.prune``, for tools that look for these.

    >>> model = keep(scores, sparsity=0.98).to_torch_prune(model)
    >>> torch.nn.utils.prune.is_pruned(model), model[0].weight_mask.shape, masks_of(model).sparsity
    (True, torch.Size([32, 64]), 0.9799528301886793)

    The parameters stay the same objects, now called ``weight_orig``. Masks that are there already, ours or torch's, are
    intersected with these, and ours become torch's. :func:`masks_of` reads them back and :func:`bake` bakes them in.

    Raises:
        InputError: if the masks are another model's, a weight has another parametrization, or it is read without its
            module being called, where torch would never compute it from its mask again. Nothing was changed then.
    """
    where = check_masks(model, masks)
    unseen = {id(module.out_proj) for module in model.modules() if isinstance(module, nn.MultiheadAttention)}
    pairs = [(name, place) for name in masks for place in where[name]]
    for name, place in pairs:
        if any(not isinstance(step, Masked) for step in place.steps):
            raise InputError(f"'{name}' has a parametrization, and torch.nn.utils.prune masks plain weights only.")
        if id(place.module) in unseen:
            raise InputError(f"torch.nn.utils.prune cannot mask '{name}', of an attention. Use apply(model, masks).")
    for name, place in pairs:
        mask = masks[name]
        if (ours := _ours(place)) is not None:
            mask = mask.to(place.parameter.device) & ours.mask
            _remove(place, ours)
        torch_prune.custom_from_mask(place.module, place.attribute, mask)
    return model


Masks.to_torch_prune = to_torch_prune


@checked
def masks_of(model: nn.Module) -> Masks:
    """Copies of a model's masks, ours and those of ``torch.nn.utils.prune``; an InputError if there are none.

    >>> masks_of(apply(model, masks)) == masks
    True
    """
    found: dict[str, Tensor] = {}
    for name, where in places(model).items():
        for place in where:
            if place.mask is not None:
                found[name] = place.mask & found[name] if name in found else place.mask.clone()
    if not found:
        text = f"the model {type(bare(model)).__name__} is not pruned: no weight has a mask"
        raise InputError(f"{text}. Of zeros in plain weights, Masks({{name: weight != 0 ...}}) makes some.")
    return Masks._own(found)


def check_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, list[Place]]:
    """The places of a model, if the masks are of it; else they are refused with the first differences."""
    known, wrong = places(model), []
    for name, mask in masks.items():
        if name not in known:
            wrong.append(f"it has no weight '{name}'.{suggest(name, known)}".removesuffix("."))
            continue
        place = known[name][0]
        if isinstance(place.parameter, nn.UninitializedParameter) or place.parameter.is_meta:
            raise InputError(f"'{name}' has no values yet; call the model once on a batch, or load weights.")
        plain = place.row is None or place.row.is_tensor
        if (shape := (place.parameter if plain else getattr(place.module, place.attribute)).shape) != mask.shape:
            wrong.append(f"'{name}' is {tuple(shape)}, its mask {tuple(mask.shape)}")
    if wrong:
        text = first_names(wrong, 3, "; ")
        raise InputError(f"these masks are of another model than this {type(bare(model)).__name__}: {text}.")
    return known


def _ours(place: Place) -> Masked | None:
    return next((step for step in place.steps if isinstance(step, Masked)), None)


def _remove(place: Place, step: Masked, *, baked: bool = False) -> None:
    """Take our parametrization away; others that were there before it stay, or all are baked into the values."""
    if place.row is not None and len(place.row) > 1 and not baked:
        place.row.pop(len(place.row) - 1)
        return
    _own_class(place.module)
    parametrize.remove_parametrizations(place.module, place.attribute, leave_parametrized=baked)
    _keep_copyable(place.module)
    stored = place.module._parameters  # in their old order: optimizers count on it
    for name in [*(n for n in step.order if n in stored), *(n for n in stored if n not in step.order)]:
        stored[name] = stored.pop(name)


def _own_class(module: nn.Module) -> None:
    """Give a parametrized module a class that no other module has. ``copy.deepcopy`` lets the copy share the class that
    torch made for the original, and torch adds and removes the weights' properties on that class: baking a copy would
    break the model it was copied from.
    """
    if parametrize.is_parametrized(module):
        kind = type(module)
        content = {key: value for key, value in vars(kind).items() if key not in ("__dict__", "__weakref__")}
        module.__class__ = type(kind.__name__, kind.__bases__, content)


def _keep_copyable(module: nn.Module) -> None:
    """Let a masked recurrent layer be copied: it holds its weights in a list, too, which have a history."""
    if isinstance(module, nn.RNNBase) and parametrize.is_parametrized(module):
        type(module).__deepcopy__ = _copy_without_history  # type: ignore[attr-defined]  # a class of its own


def _copy_without_history(module: nn.RNNBase, memo: dict[int, object]) -> nn.RNNBase:
    replica = module.__new__(type(module))
    memo[id(module)] = replica
    weights = [weight if weight is None else weight.detach() for weight in module._flat_weights]
    replica.__dict__ = copy.deepcopy({**module.__dict__, "_flat_weights": weights}, memo)
    return replica
