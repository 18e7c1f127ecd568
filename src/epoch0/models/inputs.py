"""Inputs for a model named on the command line: a data set, a file, noise, or data made up for the model's config.

Made-up data can be learned, unlike noise. Images carry the smooth pattern of their class, tokens follow from the one
before, sounds have a pitch: each class has its own rule, under noise.
"""

import contextlib
import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0 import data as datasets
from epoch0.arguments import Seed, checked
from epoch0.errors import InputError, check_finite, first_line, suggest
from epoch0.files import StrPath, to_read
from epoch0.initialization.files import read_tensors
from epoch0.initialization.initialize import gaussian_input
from epoch0.seeds import generator, numpy_generator
from epoch0.tracing.call import asked
from epoch0.tracing.guard import HALF, check_model, unchanged

EXAMPLES = 64  # when nothing else is asked for: enough for batch statistics, small enough for a large model
IMAGES, TEXTS = 16, 4  # examples when no number is asked for: large models on inputs of full size
LENGTH, WORDS, CLASSES = 64, 16, 4  # tokens in a text at most, different tokens, different classes
SECOND = 16_000  # values of a sound
MOST = 256  # examples at most; a batch of full size is large
FRAMES = 16  # pictures of a video
CLASSIFIERS = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")
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

    The model is run on two examples per layout, images first, and left unchanged. An InputError lists the attempts.

    Args:
        data: a name of :func:`epoch0.data.load`, or the path of an ``.npz`` file with x and perhaps y; by default
            inputs of the model's own size where it says one (timm, torchvision, transformers), else digits or noise.
        input_shape: of one example, ``(3, 32, 32)`` or ``"3,32,32"``, for Gaussian inputs of mean 0 and variance 1.
        batch: number of examples, fewer if the set has fewer; or a file with the whole batch, see :func:`batch_from`.
        spec: the model's name on the command line, where the model itself lacks information.
    """
    try:
        number = None if batch is None else int(str(batch))
    except ValueError:
        if data is not None or input_shape is not None:
            raise InputError(f"the batch comes from {str(batch)!r}; leave out --data and --input-shape.") from None
        return batch_from(str(batch), model)
    if number is not None and number < 1:
        raise InputError(f"a batch of {number} examples cannot be measured; ask for at least 1.")
    if data is not None and input_shape is not None:
        raise InputError(f"inputs come from data={data!r} or have a random input_shape={input_shape!r}; choose one.")
    own, main = data is None and input_shape is None, getattr(model, "main_input_name", None)
    if own and isinstance(main, str) and getattr(model, "config", None) is not None:  # a model of transformers
        return _named_inputs(model, main, number, seed)
    if not any(parameter.dtype in HALF for parameter in model.parameters()):  # who measures, says what it does with it
        check_model(model)
    labels: Tensor | None = None
    if own and (shape := _image_shape(model, spec)) is not None:
        x, labels = _patterned(shape, IMAGES if number is None else min(number, MOST), seed)
        attempts, label = [("", x)], f"made-up images of {CLASSES} classes, {_times(shape)}"
    elif input_shape is not None:
        sides = input_shape.replace("x", ",").split(",") if isinstance(input_shape, str) else input_shape
        sizes = tuple(int(side) if str(side).strip().isdecimal() else 0 for side in sides)
        if not sizes or min(sizes) < 1:
            raise InputError(f"the input shape {input_shape!r} cannot be used; give one example's, as 3,32,32.")
        x = torch.randn(number or EXAMPLES, *sizes, generator=generator(seed))
        attempts, label = [("", x)], f"Gaussian noise {_times(sizes)}"
    else:
        attempts, labels, label = _examples(data or "digits", number or EXAMPLES, data_dir, seed)
    following = None
    try:
        layout, x, outputs = _accepted(model, attempts, label)
    except InputError:
        if not own:
            raise
        if (text := _embedded(model, number or EXAMPLES, seed)) is not None:
            (tokens, following), labels, label = text
            attempts += [("", tokens), ("", tokens[:, :WORDS])]
        else:
            with contextlib.suppress(InputError):  # what was tried says more
                size, *sides = gaussian_input(model, seed)[0].shape
                attempts += [("", torch.randn(number or size, *sides, generator=generator(seed)))]
                labels, label = None, f"Gaussian noise {_times(tuple(sides))}"
        layout, x, outputs = _accepted(model, attempts, label)
    if following is not None:
        first = outputs[0] if isinstance(outputs, tuple | list) else outputs
        if asked(model, x, following) or getattr(first, "shape", ())[1:-1] == x.shape[1:]:
            following = following[:, : x.shape[1]].to(x.device)
            return Inputs(x, following, f"{len(x)} {label}, of {x.shape[1]} of which the next is to be predicted")
    targets, note = _targets(labels, outputs, own)
    return Inputs(x, None if targets is None else targets.to(x.device), f"{len(x)} examples of {label}{layout}{note}")


def _examples(name: str, count: int, data_dir: StrPath | None, seed: int) -> tuple[list[Attempt], Tensor | None, str]:
    labels: np.ndarray | None
    if name.endswith(".npz"):
        (values, labels), label = datasets.load_npz(name), Path(name).name
    else:
        loaded = datasets.load(name, data_dir=data_dir)
        values, labels = loaded.inputs("standard", flatten=False), loaded.labels
        label = f"{loaded.name} ({loaded.split})"
    fewer = len(values) > count
    chosen = np.sort(numpy_generator(seed).choice(len(values), count, replace=False)) if fewer else slice(None)
    x = torch.from_numpy(np.ascontiguousarray(values[chosen], dtype=np.float64)).to(torch.get_default_dtype())
    targets = None if labels is None else torch.from_numpy(np.ascontiguousarray(labels[chosen]))
    attempts = [(f", as {_times(tuple(x.shape[1:]))}", x)]
    if x.dim() > 2:
        attempts.append((f", flat, {x[0].numel()} numbers each", x.flatten(1)))
    return attempts, targets, label


def _embedded(model: nn.Module, count: int, seed: int) -> tuple[tuple[Tensor, Tensor], Tensor, str] | None:
    """Texts for a model that has an embedding, with the token after each; classes of the texts; a description."""
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    if not tables or tables[0] <= WORDS:
        return None
    longest = min([LENGTH, *(rows for rows in tables[1:] if rows >= 8)])  # others may hold places
    texts, labels, label = _text(SimpleNamespace(vocab_size=tables[0], n_positions=longest), count, seed)
    return (texts[:, :-1].clone(), texts[:, 1:].clone()), labels, label


def _accepted(model: nn.Module, attempts: list[Attempt], label: str) -> tuple[str, Tensor, Any]:
    """The first layout on which the model runs, with its outputs on the trial examples."""
    parameter, refusals = next((p for p in model.parameters() if p.is_floating_point()), None), []
    for layout, x in attempts:
        if parameter is not None:
            x = x.to(parameter.device, parameter.dtype if x.is_floating_point() else x.dtype)
        try:
            with unchanged(model), torch.no_grad():
                model.eval()
                return layout, x, model(x[:TRIED])
        except Exception as problem:
            refusals.append(f"shape {tuple(x.shape)}: {type(problem).__name__}: {first_line(problem)}")
    raise InputError(f"the model accepts {label} in no layout. Tried {'; '.join(refusals)}. Give --input-shape.")


def _targets(labels: Tensor | None, outputs: Any, dense: bool) -> tuple[Tensor | None, str]:
    """The labels if the model has one output for each class (``dense``: at each point), or why they are left out."""
    if labels is None or labels.is_floating_point() or labels.dim() != 1:
        return None, "" if labels is None else "; the targets in the file are no class labels and were left out"
    if isinstance(outputs, Mapping):  # of the models of torchvision that segment
        outputs = next(iter(outputs.values()), None)
    places = outputs.shape[2:] if isinstance(outputs, Tensor) and dense and outputs.dim() == 4 else ()
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 + len(places):
        return None, "; the labels were left out, as the output is not one score a class"
    labels, scores, largest = labels.long(), int(outputs.shape[1]), int(labels.max())
    if int(labels.min()) < 0 or largest >= scores:
        has = f"{scores} output{'s' if scores > 1 else ''}"
        return None, f"; the labels were left out, as they go up to {largest} and the model has {has}"
    return labels.reshape(-1, *[1] * len(places)).expand(-1, *places), ""


def _times(sizes: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in sizes)


def batch_from(path: str | Path, model: nn.Module) -> Inputs:
    """The batch in a file; nothing is unpickled.

    An ``.npz`` or ``.safetensors`` holds ``x`` (or ``inputs``) for a model of one input, else the arguments of its
    forward by name; and, where there are any, targets ``y``, ``targets`` or ``labels``. Names of the forward stay.
    """
    path, arrays = to_read(path, "batch"), dict[str, Tensor]()
    if (kind := path.suffix.lower()) not in (".npz", ".safetensors"):
        raise InputError(f"a batch comes as .npz or .safetensors, not {path.name!r}; a pickle is never opened.")
    if kind == ".safetensors":
        arrays = read_tensors(path, "batch")[0]
        for name, array in arrays.items():
            if array.dim() == 0 or len(array) == 0:
                raise InputError(f"{name} in {path} has shape {tuple(array.shape)}; it needs at least one example.")
            check_finite(f"{name} in {path}", array)
    else:  # floats in torch's default dtype, integers as long
        for name, values in datasets.read_npz(path).items():
            dtype = {"f": torch.get_default_dtype(), "b": torch.bool}.get(values.dtype.kind, torch.long)
            arrays[name] = torch.from_numpy(np.array(values, np.float64 if dtype.is_floating_point else None)).to(dtype)
    if not arrays:
        raise InputError(f"{path} holds no arrays; it needs x, or the names of the model's arguments.")
    shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
    known = inspect.signature(model.forward).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    if len(found := [name for name in TARGETS if name in arrays and name not in known]) > 1:
        raise InputError(f"{path} holds {' and '.join(found)}; only one of them can be the targets.")
    targets = arrays.pop(found[0]) if found else None
    if not arrays:
        raise InputError(f"{path} holds only {found[0]}; it needs x, or the names of the model's arguments.")
    note = f"{len(next(iter(arrays.values())))} examples of {path.name}: {shapes}"
    if len(arrays) == 1 and next(iter(arrays)) in INPUTS:
        return Inputs(next(iter(arrays.values())), targets, note)
    if unknown := [name for name in arrays if name not in known and not free]:
        text = f"{path} holds {', '.join(unknown)}, which the model's forward does not take"
        raise InputError(f"{text}; it takes {', '.join(known)}.{suggest(unknown[0], known)}")
    return Inputs(arrays, targets, note)


def _image_shape(model: nn.Module, spec: str = "") -> tuple[int, ...] | None:
    """Shape of one image that a model of timm or torchvision is made for, None for other models."""
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if isinstance(settings, dict) and settings.get("input_size"):
        channels, *size = settings["input_size"]
        built_for = getattr(getattr(model, "patch_embed", None), "img_size", None)
        return (int(channels), *(int(s) for s in built_for or size))
    if not type(model).__module__.startswith("torchvision.models"):
        return None
    size, name = 299 if type(model).__name__ == "Inception3" else 224, spec.removeprefix("torchvision:")
    if name != spec:
        # else there are no trained weights, or they crop nothing
        with contextlib.suppress(AttributeError, ValueError, TypeError, IndexError):
            transforms = importlib.import_module("torchvision.models").get_model_weights(name).DEFAULT.transforms()
            size = int(transforms.crop_size[0])
    size = int(getattr(model, "image_size", None) or size)
    return (3, *([FRAMES] if ".video" in type(model).__module__ or "3d" in spec else []), size, size)


def _patterned(shape: tuple[int, ...], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of mean 0 and variance 1, half of it the smooth pattern of their class, half noise; and the classes."""
    channels, *size = shape
    coarse = torch.randn(CLASSES, channels, *(min(6, s) for s in size), generator=generator(seed, 0))
    patterns = F.interpolate(coarse, size, mode="trilinear" if len(size) == 3 else "bilinear")
    patterns, labels = patterns / patterns.flatten(1).std(dim=1).reshape(-1, *[1] * len(shape)), _classes(count, seed)
    return (patterns[labels] + torch.randn(count, *shape, generator=generator(seed, 2))) / math.sqrt(2), labels


def _classes(count: int, seed: int) -> Tensor:
    return (torch.arange(count) % CLASSES)[torch.randperm(count, generator=generator(seed, 1))]


def _named_inputs(model: nn.Module, main: str, count: int | None, seed: int) -> Inputs:
    """Inputs for a model of transformers of text, images or sound by its arguments' names, labels among them."""
    known = inspect.signature(model.forward).parameters
    made = {"input_ids": _text, "pixel_values": _image, "input_features": _spectrum, "input_values": _sound}
    needed = [n for n in made if n == main or (n in known and known[n].default is inspect.Parameter.empty)]
    both = "input_ids" in known and "pixel_values" in known and "return_loss" in known
    needed = ["input_ids", "pixel_values"] if both else needed
    if not needed:
        raise InputError(f"{type(model).__name__} asks for {main!r}, which is not made up here; use --batch inputs.npz")
    number = min(count, MOST) if count is not None else TEXTS if needed == ["input_ids"] else IMAGES
    batch, words, config = dict[str, Any](), [], model.config
    for name in needed:
        batch[name], labels, noun = made[name](config, number, seed)
        words.append(noun)
        if name == "input_ids" and "attention_mask" in known:
            batch["attention_mask"] = torch.ones_like(batch[name])
    note = _label(type(model).__name__, config, batch, labels, known)
    return Inputs(batch, None, f"{number} made-up {' and '.join(words)}{note}")


def _label(kind: str, config: Any, batch: dict[str, Any], classes: Tensor, known: Any) -> str:
    """Put the labels that a model of this kind learns into the batch; a note where none is known to fit."""
    ids = batch.get("input_ids")
    if "return_loss" in known:
        batch["return_loss"] = True
    elif "labels" in known and kind.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        batch["labels"] = (_text(config, len(classes), 0)[0] if ids is None else ids).clone()
    elif "labels" in known and ids is not None and kind.endswith("ForMaskedLM"):
        hidden = torch.zeros_like(ids, dtype=torch.bool)
        hidden[:, ::6] = True
        batch["labels"] = torch.where(hidden, ids, torch.full_like(ids, -100))
        batch["input_ids"] = torch.where(hidden, _vocabulary(config)[WORDS], ids)
    elif "labels" in known and kind.endswith(CLASSIFIERS) and config.num_labels > 1:
        batch["labels"] = classes % int(config.num_labels)
    elif getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in known:
        batch["decoder_input_ids"] = (_text(config, len(classes), 0)[0] if ids is None else ids).clone()
        return "; no labels, as the model has no head"
    else:
        return "; no labels"
    return ""


def _part(config: Any, name: str) -> Any:
    """The part of a configuration that is about text or vision, or all of it."""
    return getattr(config, f"{name}_config", None) or config


def _vocabulary(config: Any) -> Tensor:
    """The tokens that occur, spread over the vocabulary, none of them special; the last stands for a hidden one."""
    text = _part(config, "text")
    special = {value for key, value in vars(text).items() if key.endswith("_token_id") and isinstance(value, int)}
    size = int(text.vocab_size)
    if len(usual := [token for token in range(size) if token not in special]) <= WORDS:
        raise InputError(f"a vocabulary of {size} tokens is too small for texts to be made up; give --batch.")
    return torch.tensor(usual)[torch.linspace(0, len(usual) - 1, WORDS + 1).long()]


def _text(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    text = _part(config, "text")
    longest = [getattr(text, key, None) for key in ("max_position_embeddings", "n_positions", "max_target_positions")]
    length = min(LENGTH, next((n for n in longest if isinstance(n, int) and n > 0), LENGTH))
    words, labels = _vocabulary(config)[:WORDS], _classes(count, seed)
    order = torch.randperm(WORDS, generator=generator(seed, 3))
    start = torch.randint(WORDS, (count, 1), generator=generator(seed, 4))
    places = (start + (2 * labels[:, None] + 1) * torch.arange(length)) % WORDS  # each class goes round at its own step
    return words[order[places]], labels, f"texts of {length} of the model's {int(text.vocab_size)} tokens"


def _image(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    vision = _part(config, "vision")
    size = getattr(vision, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    shape = (int(getattr(vision, "num_channels", 3)), int(height), int(width))
    return *_patterned(shape, count, seed), f"images {_times(shape)}"


def _spectrum(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    bins, frames = getattr(config, "num_mel_bins", None), 2 * int(getattr(config, "max_source_positions", None) or 50)
    if not isinstance(bins, int):
        raise InputError("the spectra that this model asks for are not made up here; give --batch inputs.npz")
    x, labels = _patterned((1, bins, frames), count, seed)
    return x[:, 0], labels, f"spectra of {bins}×{frames}"


def _sound(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    labels, time = _classes(count, seed), torch.arange(SECOND) / SECOND
    tone = torch.sin(2 * math.pi * 220 * 2.0 ** labels[:, None] * time) * math.sqrt(2)
    return tone + 0.3 * torch.randn(count, SECOND, generator=generator(seed, 2)), labels, "sounds of one second"
