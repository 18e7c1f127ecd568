"""Inputs for a model named on the command line: a data set, a file, noise, or what the model says it is made for."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import data as datasets
from epoch0.arguments import Seed, checked
from epoch0.errors import InputError, check_finite, first_line, suggest
from epoch0.files import to_read
from epoch0.initialization.files import read_tensors
from epoch0.models.own_sizes import CLASSES, IMAGES, MOST, image_shape, is_transformers_model, named_inputs, patterned
from epoch0.seeds import generator, numpy_generator
from epoch0.tracing.guard import HALF, check_model, unchanged

EXAMPLES = 64
"""Examples in a batch when nothing else is asked for: enough for batch statistics, small enough for a large model."""

TRIED = 2  # examples of the trial runs that find the layout
INPUTS, TARGETS = ("x", "inputs"), ("y", "targets", "labels")  # names of the one input and of the targets in a file

Attempt = tuple[str, Tensor]


@dataclass(frozen=True)
class Inputs:
    """A batch that the model accepts, and what it is."""

    x: Any  #: shape (examples, ...), in the model's dtype, on its device; of several arguments a mapping of names
    targets: Tensor | None  #: class index of each example, shape (examples,), or what a file gives
    description: str  #: such as "128 examples of digits (train), flat, 64 numbers each"


@checked
def inputs_for(
    model: nn.Module,
    *,
    data: str | None = None,
    input_shape: str | Sequence[int] | None = None,
    batch: int | str | Path | None = None,
    spec: str = "",
    data_dir: str | Path | None = None,
    seed: Seed = 0,
) -> Inputs:
    """A batch for a model whose input layout is not known.

    >>> batch = inputs_for(e0.networks.mlp([64, 32, 10]), data="digits")
    >>> batch.x.shape, batch.targets.shape                      # flat, because the model refuses images
    (torch.Size([64, 64]), torch.Size([64]))

    The model is run on two examples per layout, images first, and left unchanged. If it accepts none, the InputError
    tells each attempt.

    Args:
        data: a name of :func:`epoch0.data.load`, or the path of an ``.npz`` file with x and perhaps y; by default
            inputs of the model's own size where it says one (timm, torchvision, transformers), else the digits.
        input_shape: of one example, ``(3, 32, 32)`` or ``"3,32,32"``, for Gaussian inputs of mean 0 and variance 1.
        batch: number of examples, fewer if the set has fewer; or a file with the whole batch, see :func:`batch_from`.
        spec: the model's name on the command line, for what it does not say of itself.
    """
    try:
        number = None if batch is None else int(str(batch))
    except ValueError:
        if data is not None or input_shape is not None:
            raise InputError(f"the batch comes from {str(batch)!r}; leave out --data and --input-shape.") from None
        return Inputs(*batch_from(str(batch), model))
    if number is not None and number < 1:
        raise InputError(f"a batch of {number} examples cannot be measured; ask for at least 1.")
    if data is not None and input_shape is not None:
        raise InputError(f"inputs come from data={data!r} or have a random input_shape={input_shape!r}; choose one.")
    own = data is None and input_shape is None
    if own and is_transformers_model(model):
        named, what = named_inputs(model, number, seed)
        return Inputs(named, None, what)
    if not any(parameter.dtype in HALF for parameter in model.parameters()):  # who measures, says what it does with it
        check_model(model)
    labels: Tensor | None = None
    if own and (shape := image_shape(model, spec)) is not None:
        x, labels = patterned(shape, IMAGES if number is None else min(number, MOST), CLASSES, seed)
        attempts, what = [("", x)], f"made-up images of {CLASSES} classes, {_times(shape)}"
    elif input_shape is not None:
        attempts, what = _noise(input_shape, number or EXAMPLES, seed)
    else:
        attempts, labels, what = _examples(data or "digits", number or EXAMPLES, data_dir, seed)
    layout, x, outputs = _accepted(model, attempts, what)
    targets, note = _targets(labels, outputs, own)
    if targets is not None:
        targets = targets.to(x.device)
    return Inputs(x, targets, f"{len(x)} examples of {what}{layout}{note}")


def _noise(shape: str | Sequence[int], batch: int, seed: int) -> tuple[list[Attempt], str]:
    try:
        sizes = tuple(int(size) for size in (shape.replace("x", ",").split(",") if isinstance(shape, str) else shape))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise InputError(f"the input shape {shape!r} cannot be used; give that of one example, such as 784 or 3,32,32.")
    return [("", torch.randn(batch, *sizes, generator=generator(seed)))], f"Gaussian noise {_times(sizes)}"


def _examples(
    name: str, examples: int, data_dir: str | Path | None, seed: int
) -> tuple[list[Attempt], Tensor | None, str]:
    labels: np.ndarray | None
    if name.endswith(".npz"):
        values, labels = datasets.load_npz(name)
        what = Path(name).name
    else:
        loaded = datasets.load(name, data_dir=data_dir)
        values, labels = loaded.inputs("standard", flatten=False), loaded.labels
        what = f"{loaded.name} ({loaded.split})"
    chosen = np.arange(len(values))
    if len(values) > examples:
        chosen = np.sort(numpy_generator(seed).choice(len(values), examples, replace=False))
    x = torch.from_numpy(np.ascontiguousarray(values[chosen], dtype=np.float64)).to(torch.get_default_dtype())
    targets = None if labels is None else torch.from_numpy(np.ascontiguousarray(labels[chosen]))
    attempts = [(f", as {_times(tuple(x.shape[1:]))}", x)]
    if x.dim() > 2:
        attempts.append((f", flat, {x[0].numel()} numbers each", x.flatten(1)))
    return attempts, targets, what


def _accepted(model: nn.Module, attempts: list[Attempt], what: str) -> tuple[str, Tensor, Any]:
    """The first layout on which the model runs, with its outputs on the trial examples."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    refusals = []
    for layout, x in attempts:
        if parameter is not None:
            x = x.to(device=parameter.device, dtype=parameter.dtype)
        try:
            with unchanged(model), torch.no_grad():
                model.eval()
                outputs = model(x[:TRIED])
        except Exception as problem:
            refusals.append(f"shape {(len(x), *x.shape[1:])}: {type(problem).__name__}: {first_line(problem)}")
            continue
        return layout, x, outputs
    tried = "; ".join(refusals)
    raise InputError(
        f"the model accepts {what} in no layout. Tried {tried}. Give the shape of one example with --input-shape, "
        "or examples in the right shape as an .npz file."
    )


def _targets(labels: Tensor | None, outputs: Any, dense: bool) -> tuple[Tensor | None, str]:
    """The labels if the model has one output for each class, or why they are left out.

    With ``dense`` a model that answers for each point of an image is asked for the label at each.
    """
    if labels is None:
        return None, ""
    if labels.is_floating_point() or labels.dim() != 1:
        return None, "; the targets in the file are no class labels and were left out"
    if isinstance(outputs, Mapping):  # of the models of torchvision that segment
        outputs = next(iter(outputs.values()), None)
    places = outputs.shape[2:] if isinstance(outputs, Tensor) and dense and outputs.dim() == 4 else ()
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 + len(places):
        return None, "; the labels were left out, as the output is not one score a class"
    labels, scores, largest = labels.long(), int(outputs.shape[1]), int(labels.max())
    if int(labels.min()) < 0 or largest >= scores:
        plural = "s" if scores > 1 else ""
        return None, f"; the labels were left out, as they go up to {largest} and the model has {scores} output{plural}"
    return labels.reshape(-1, *[1] * len(places)).expand(-1, *places), ""


def _times(sizes: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in sizes)


def batch_from(path: str | Path, model: nn.Module) -> tuple[Any, Tensor | None, str]:
    """The batch in a file, its targets, and what they are in words; nothing is unpickled.

    An ``.npz`` or ``.safetensors`` holds ``x`` (or ``inputs``) for a model of one input, else the arguments of its
    forward by name; and, where there are any, targets ``y``, ``targets`` or ``labels``. What the forward names, stays
    in the batch: ``labels`` of a model of transformers.
    """
    path = to_read(path, "batch")
    if (kind := path.suffix.lower()) not in (".npz", ".safetensors"):
        raise InputError(f"a batch comes as .npz or .safetensors, not {path.name!r}; a pickle is never opened.")
    arrays = _npz(path) if kind == ".npz" else read_tensors(path, "batch")[0]
    for name, array in arrays.items() if kind == ".safetensors" else ():
        if array.dim() == 0 or len(array) == 0:
            raise InputError(f"{name} in {path} has shape {tuple(array.shape)}; it needs at least one example.")
        check_finite(f"{name} in {path}", array)
    if not arrays:
        raise InputError(f"{path} holds no arrays; it needs x, or the names of the model's arguments.")
    shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
    known = inspect.signature(model.forward).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    found = [name for name in TARGETS if name in arrays and name not in known]
    if len(found) > 1:
        raise InputError(f"{path} holds {' and '.join(found)}; only one of them can be the targets.")
    targets = arrays.pop(found[0]) if found else None
    if not arrays:
        raise InputError(f"{path} holds only {found[0]}; it needs x, or the names of the model's arguments.")
    said = f"{len(next(iter(arrays.values())))} examples of {path.name}: {shapes}"
    if len(arrays) == 1 and next(iter(arrays)) in INPUTS:
        return next(iter(arrays.values())), targets, said
    if unknown := [name for name in arrays if name not in known and not free]:
        raise InputError(
            f"{path} holds {', '.join(unknown)}, which the model's forward does not take; it takes "
            f"{', '.join(known)}.{suggest(unknown[0], known)}"
        )
    return arrays, targets, said


def _npz(path: Path) -> dict[str, Tensor]:
    """Floats in torch's default dtype, integers as long."""
    found = {}
    for name, array in datasets.read_npz(path).items():
        floats = array.dtype.kind == "f"
        tensor = torch.from_numpy(np.array(array, dtype=np.float64 if floats else None))
        integers = torch.bool if array.dtype.kind == "b" else torch.long
        found[name] = tensor.to(torch.get_default_dtype() if floats else integers)
    return found
