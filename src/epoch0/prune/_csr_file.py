"""A really sparse model in a safetensors file, and back into a fresh model of its architecture (THEORY section 4)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from epoch0.errors import InputError, suggest
from epoch0.initialization.files import load_tensors, save_tensors
from epoch0.prune._copies import plain_copy, replaced
from epoch0.prune._csr import CsrConv, CsrLinear, CsrMatrix, quiet
from epoch0.prune._masks import listed
from epoch0.tracing.guard import bare

if TYPE_CHECKING:
    from epoch0.prune._csr_result import CsrExport

LAYOUT = "epoch0 sparse model 1"
"""Layout of the file; one that states another version is not read."""

_KINDS = {"Linear": nn.Linear, "Conv1d": nn.Conv1d, "Conv2d": nn.Conv2d}
_NO_MATTER = {"inplace", "p", "dropout", "momentum"}  # changes nothing in eval mode


def save_csr(export: "CsrExport", path: str | Path) -> Path:
    """What :meth:`CsrExport.save` does: each tensor once, kinds and settings of all modules in the header.

    Raises:
        InputError: if the path is wrong, the file cannot be written, or the model's state is not only tensors.
    """
    tensors: dict[str, Tensor] = {}
    first: dict[int, str] = {}
    same: dict[str, str] = {}
    for key, value in export.model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise InputError(f"the state '{key}' of the model is a {type(value).__name__}; only tensors can be saved.")
        name = first.setdefault(id(value), key)
        if name == key:
            tensors[key] = value
        else:
            same[key] = name
    dense = {row.name: {"kind": row.kind, "shape": list(row.shape)} for row in export.layers}
    layers: dict[str, Any] = {}
    for name, module in export.model.named_modules():
        if isinstance(module, CsrLinear):
            layers[name] = dense[name]
        elif isinstance(module, CsrConv):
            layers[name] = {**dense[name], "together": module.together}
    words = {"model": type(export.model).__name__, "layers": layers, "modules": _anatomy(export.model), "same": same}
    return save_tensors(path, "sparse weights", LAYOUT, tensors, {key: json.dumps(word) for key, word in words.items()})


def load_csr(model: nn.Module, path: str | Path) -> nn.Module:
    """The sparse model that :meth:`CsrExport.save` wrote, in the code of a model of the same architecture.

    >>> to_csr(pruned, x).save("sparse.safetensors")
    >>> net = load_csr(build(), "sparse.safetensors")           # any weights: all are replaced
    >>> net(x)                                                  # (examples, ...), to the bit what export.model(x) was

    Args:
        model: dense, pruned or not; it gives the code, and stays as it is. All its values are replaced, in the dtype
            of the file, on the devices of the model.
        path: the file.

    Returns:
        A new model in eval mode, with the sparse layers of the file.

    Raises:
        InputError: if the file is missing, cut short, damaged or something else, or the model has another
            architecture; it names the first differences.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"a torch.nn.Module is needed, not {model!r}; load_csr takes the model first, then the path.")
    tensors, words = load_tensors(path, "sparse weights", LAYOUT, "CsrExport.save")
    layers, modules, same = (json.loads(words[key]) for key in ("layers", "modules", "same"))
    _check_filled(model)
    found = plain_copy(bare(model))
    if wrong := _unlike(found, layers):
        raise _other(model, path, wrong)
    for name, about in layers.items():
        found = replaced(found, name, _empty(found.get_submodule(name), about))
    state = {**tensors, **{key: tensors[name] for key, name in same.items()}}
    if wrong := [*_differences(_anatomy(found), modules), *_misfits(found, state, layers, same)]:
        raise _other(model, path, wrong)
    for name in layers:
        _fill(found.get_submodule(name), {key: state[f"{name}.matrix.{key}" if name else f"matrix.{key}"]
                                          for key in ("row_starts", "columns", "values")}, path)  # fmt: skip
    found.zero_grad()  # gradients of old values, if any
    for key, tensor in found.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and tensor.dtype != state[key].dtype:
            tensor.data = tensor.data.to(state[key].dtype)
    found.load_state_dict(state)
    return found


def _anatomy(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Kind and settings of each module that is not the user's own, as JSON gives them back."""
    found: dict[str, dict[str, Any]] = {}
    for name, module in model.named_modules():
        if isinstance(module, CsrMatrix):
            continue
        about: dict[str, Any] = {}
        if isinstance(module, CsrConv):
            names: list[str] = ["kernel", "stride", "dilation", "pads", "padding_mode"]
        else:
            names = [*getattr(module, "__constants__", ()), "num_heads"]
        if type(module).__module__.startswith(("torch.nn.", "epoch0.")):
            about["kind"] = type(module).__name__
            about |= {key: getattr(module, key) for key in names if hasattr(module, key) and key not in _NO_MATTER}
        found[name] = about
    read: dict[str, dict[str, Any]] = json.loads(json.dumps(found, default=str))
    return read


def _unlike(model: nn.Module, layers: dict[str, Any]) -> list[str]:
    """Layers that are sparse in the file, and missing or of another kind or shape in the model."""
    homes, wrong = dict(model.named_modules()), []
    for name, about in layers.items():
        layer, shape = homes.get(name), tuple(about["shape"])
        weight = getattr(layer, "weight", None)
        if isinstance(layer, CsrLinear | CsrConv):
            wrong.append(f"'{name}' is sparse already; a dense model is needed")
        elif layer is None:
            wrong.append(f"it has no layer '{name}', a {about['kind']} of {shape}.{suggest(name, homes)}"
                         .removesuffix("."))  # fmt: skip
        elif type(layer) is not _KINDS[about["kind"]]:
            wrong.append(f"'{name}' is a {type(layer).__name__}, in the file a {about['kind']}")
        elif isinstance(weight, Tensor) and weight.shape != shape:
            wrong.append(f"'{name}' has weights of {tuple(weight.shape)}, in the file {shape}")
    return wrong


def _empty(layer: nn.Module, about: dict[str, Any]) -> CsrLinear | CsrConv:
    """The sparse layer without entries."""
    with torch.no_grad():
        layer.weight.zero_()  # type: ignore[operator]
    if isinstance(layer, nn.Linear):
        return CsrLinear(layer)
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    return CsrConv(layer, about["together"])


def _differences(ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> list[str]:
    wrong = []
    for name, about in theirs.items():
        if name not in ours:
            wrong.append(f"it has no module '{name}'" + (f", a {about['kind']}" if "kind" in about else ""))
            continue
        wrong += [f"'{name}' has {key} {ours[name][key]}, in the file {value}"
                  for key, value in about.items() if key in ours[name] and ours[name][key] != value]  # fmt: skip
    return [*wrong, *(f"the file has no module '{name}'" for name in ours if name not in theirs)]


def _misfits(model: nn.Module, state: dict[str, Tensor], layers: dict[str, Any], same: dict[str, str]) -> list[str]:
    """Tensors that one side lacks, of other shapes and kinds of numbers, or shared in the model but not in the file."""
    ours, first, wrong = model.state_dict(keep_vars=True), dict[int, str](), list[str]()
    inside = tuple(f"{name}.matrix." if name else "matrix." for name in layers)
    for key, tensor in ours.items():
        if key not in state:
            wrong.append(f"the file has no '{key}'.{suggest(key, state)}".removesuffix("."))
            continue
        if not isinstance(tensor, Tensor) or same.get(key, key).startswith(inside):
            continue
        there = state[key]
        if tensor.shape != there.shape:
            wrong.append(f"'{key}' is {tuple(tensor.shape)}, in the file {tuple(there.shape)}")
        elif tensor.is_floating_point() != there.is_floating_point():
            wrong.append(f"'{key}' is {tensor.dtype}, in the file {there.dtype}")
        name = first.setdefault(id(tensor), key)
        if same.get(key, key) != same.get(name, name):
            wrong.append(f"'{key}' and '{name}' are one tensor here and two in the file")
    return [*wrong, *(f"it has no '{key}'.{suggest(key, ours)}".removesuffix(".") for key in state if key not in ours)]


def _fill(layer: nn.Module, parts: dict[str, Tensor], path: str | Path) -> None:
    """Give the rows of a sparse layer their lengths, after checking that they are rows of its matrix."""
    matrix = layer.matrix
    assert isinstance(matrix, CsrMatrix)
    quiet()
    try:
        torch.sparse_csr_tensor(
            parts["row_starts"], parts["columns"], parts["values"], (matrix.rows, matrix.width), check_invariants=True
        )
    except RuntimeError as problem:
        raise InputError(f"the sparse weights {str(path)!r} are damaged: {problem}") from problem
    for key, tensor in parts.items():
        setattr(matrix, key, torch.empty_like(tensor, device=matrix.values.device))


def _check_filled(model: nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise InputError(f"'{name}' is lazy and has no shape yet; call the model once on a batch first.")
        if tensor.device.type == "meta":
            raise InputError(f"'{name}' is on the meta device; move the model with .to_empty(device='cpu') first.")


def _other(model: nn.Module, path: str | Path, wrong: list[str]) -> InputError:
    kind = type(bare(model)).__name__
    return InputError(f"the sparse weights {str(path)!r} are of another model than this {kind}: {listed(wrong)}.")
