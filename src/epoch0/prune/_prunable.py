"""Which parameters can be pruned, under the names that they have in the unpruned model (Hayou et al. 2021, 2.1)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from epoch0.errors import InputError
from epoch0.tracing.guard import bare

_MATRICES = (nn.Linear, nn.Bilinear, _ConvNd, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
_LISTS = (nn.ParameterList, nn.ParameterDict)
_TABLES = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True, eq=False)
class Weight:
    """One prunable weight as it stands in the model.

    Attributes:
        name: its name in the unpruned model, ``"conv1.weight"``.
        key: its name now, ``"conv1.parametrizations.weight.original"`` behind a mask.
        parameter: the tensor itself.
        mask: True where the weight is kept; None where nothing masks it.
    """

    name: str
    key: str
    parameter: nn.Parameter
    mask: Tensor | None


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that can be pruned.

    >>> list(prunable(nn.Sequential(nn.Conv2d(3, 16, 5), nn.BatchNorm2d(16), nn.Flatten(), nn.Linear(16, 10))))
    ['0.weight', '3.weight']

    The floating-point parameters of two or more dimensions of linear maps, convolutions, attention, recurrent layers
    and modules of your own. Not biases, norms and embeddings, nor a parameter of your own module that is named a bias
    or has three or more dimensions of which the first is 1 (a class token, a position embedding). A parameter in
    several modules is there once, under its first name; so is one behind a mask (ours or that of
    ``torch.nn.utils.prune``), under the name it had before.

    Args:
        model: any module.

    Returns:
        Name -> parameter, in the order of the modules.

    Raises:
        InputError: if no weight can be pruned, or one is computed from other parameters (weight norm).

    Source: Hayou et al. 2021, section 2.1.
    """
    return {weight.name: weight.parameter for weight in standing(model)}


def standing(model: nn.Module) -> list[Weight]:
    """The same weights with the masks that stand on them; see :func:`prunable`."""
    found, seen = list[tuple[int, Weight]](), set[int]()
    keys = {id(parameter): key for key, parameter in bare(model).named_parameters()}
    order = {uncompiled(path): place for place, (path, _) in enumerate(bare(model).named_modules())}
    for path, module in bare(model).named_modules():
        for weight in _of_module(path, module):
            if id(weight.parameter) in seen:
                continue
            seen.add(id(weight.parameter))
            if (key := keys[id(weight.parameter)]) != weight.key:  # it is a table's, too, and stands there first
                weight = replace(weight, name=plain_name(key), key=key)
            found.append((order[weight.name.rpartition(".")[0]], weight))
    if not found:
        raise InputError(
            f"the model {type(model).__name__} has no weight that can be pruned; "
            "linear maps, convolutions and matrices in modules of your own can."
        )
    return [weight for _, weight in sorted(found, key=lambda pair: pair[0])]


def plain_name(name: str) -> str:
    """The name that a parameter had before it was parametrized or pruned, or a module around it compiled.

    >>> plain_name("layer1.0.parametrizations.weight.original"), plain_name("fc.weight_orig")
    ('layer1.0.weight', 'fc.weight')
    """
    name = uncompiled(name)
    module, _, rest = name.rpartition("parametrizations.")
    if rest.endswith(".original") and (not module or module.endswith(".")):
        return module + rest.removesuffix(".original")
    return name.removesuffix("_orig")


def uncompiled(name: str) -> str:
    """The name that a module or a parameter had before a module around it was compiled in place.

    >>> uncompiled("body._orig_mod.0.weight")
    'body.0.weight'
    """
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _of_module(path: str, module: nn.Module) -> Iterator[Weight]:
    masked = parametrize.is_parametrized(module)
    kind = type(module).__mro__[1] if masked else type(module)  # a parametrized module has a class of its own
    matrix = issubclass(kind, _MATRICES)
    torchs = kind.__module__.startswith("torch.nn.") and not issubclass(kind, _LISTS)
    if not matrix and (torchs or issubclass(kind, _TABLES) or "Norm" in kind.__name__):
        return
    dot = f"{path}." if path else ""
    for key, parameter in module.named_parameters(recurse=False):
        name, mask = key, None
        if key.endswith("_orig") and isinstance(found := module._buffers.get(f"{key[:-5]}_mask"), Tensor):
            name, mask = key[:-5], found.bool()
        if not _is_weight(name, parameter, matrix):
            continue
        if matrix and name.endswith(("_g", "_v")):
            raise _computed(dot + name[:-2], "weight_norm")
        yield Weight(uncompiled(dot + name), dot + key, parameter, mask)
    for name, chain in module.parametrizations.items() if masked else ():  # type: ignore[union-attr,operator]
        first = next(chain.parameters(recurse=False), None)
        if first is None or not _is_weight(name, first, matrix):
            continue
        masks = [getattr(step, "mask", None) for step in chain]
        tensors = [mask.bool() for mask in masks if isinstance(mask, Tensor)]
        if len(tensors) < len(masks):
            raise _computed(dot + name, ", ".join(type(step).__name__ for step in chain))
        kept = torch.stack(tensors).all(0)
        yield Weight(uncompiled(dot + name), f"{dot}parametrizations.{name}.original", chain.original, kept)


def _is_weight(name: str, parameter: Tensor, matrix: bool) -> bool:
    if not parameter.is_floating_point() or parameter.dim() < 2 or "bias" in name:
        return False
    return matrix or not (parameter.dim() > 2 and parameter.shape[0] == 1)


def _computed(name: str, how: str) -> InputError:
    return InputError(
        f"the weight '{name}' is computed from other parameters ({how}), so no entry of it can be pruned; "
        "make it plain first (torch.nn.utils.parametrize.remove_parametrizations, torch.nn.utils.remove_weight_norm)."
    )
