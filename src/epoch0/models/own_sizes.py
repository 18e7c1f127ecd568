"""Inputs of a model's own size: what it says of itself (image size, vocabulary), filled with data that can be learned.

Noise alone would teach nothing about training. Images carry the smooth pattern of their class, tokens follow from the
one before, sounds have a pitch: each class has its own rule, under noise.
"""

import importlib
import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.seeds import generator

IMAGES, TEXTS = 16, 4  # examples when no number is asked for: large models on inputs of full size
LENGTH, WORDS, CLASSES = 64, 16, 4  # tokens in a text at most, different tokens, different classes
SECOND = 16_000  # values of a sound
MOST = 256  # examples at most; a batch of full size is large
FRAMES = 16  # pictures of a video
CLASSIFIERS = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")


def image_shape(model: nn.Module, spec: str = "") -> tuple[int, ...] | None:
    """Shape of one image that a model of timm or torchvision is made for, None for other models.

    One of timm says so itself; of torchvision, the transforms of its trained weights do, found by its name there.
    """
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if isinstance(settings, dict) and settings.get("input_size"):
        channels, *size = settings["input_size"]
        built_for = getattr(getattr(model, "patch_embed", None), "img_size", None)
        return (int(channels), *(int(s) for s in built_for or size))
    if not type(model).__module__.startswith("torchvision.models"):
        return None
    size = getattr(model, "image_size", None) or _crop(spec) or (299 if type(model).__name__ == "Inception3" else 224)
    moving = ".video" in type(model).__module__ or "3d" in spec
    return (3, *([FRAMES] if moving else []), int(size), int(size))


def _crop(spec: str) -> int | None:
    """The size to which the trained weights of a model of torchvision crop an image."""
    source, _, name = spec.partition(":")
    if source != "torchvision":
        return None
    try:
        transforms = importlib.import_module("torchvision.models").get_model_weights(name).DEFAULT.transforms()
        return int(transforms.crop_size[0])
    except (AttributeError, ValueError, TypeError, IndexError):  # no trained weights, or they crop nothing
        return None


def patterned(shape: tuple[int, ...], count: int, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of mean 0 and variance 1, half of it the smooth pattern of their class, half noise; and the classes."""
    channels, *size = shape
    coarse = torch.randn(classes, channels, *(min(6, s) for s in size), generator=generator(seed, 0))
    patterns = F.interpolate(coarse, size, mode="trilinear" if len(size) == 3 else "bilinear")
    patterns = patterns / patterns.flatten(1).std(dim=1).reshape(-1, *[1] * len(shape))
    labels = _classes(count, classes, seed)
    noise = torch.randn(count, *shape, generator=generator(seed, 2))
    return (patterns[labels] + noise) / math.sqrt(2), labels


def _classes(count: int, classes: int, seed: int) -> Tensor:
    return (torch.arange(count) % classes)[torch.randperm(count, generator=generator(seed, 1))]


def is_transformers_model(model: nn.Module) -> bool:
    """Does the model carry a configuration and the name of its input, as those of transformers do?"""
    return getattr(model, "config", None) is not None and isinstance(getattr(model, "main_input_name", None), str)


def named_inputs(model: nn.Module, count: int | None, seed: int = 0) -> tuple[dict[str, Any], str]:
    """Inputs for a model of transformers by the names of its arguments, labels among them, and what they are in words.

    A model that asks for something else than text, images or sound is an InputError.
    """
    known, main = inspect.signature(model.forward).parameters, str(model.main_input_name)
    made = {"input_ids": _text, "pixel_values": _image, "input_features": _spectrum, "input_values": _sound}
    needed = [n for n in made if n == main or (n in known and known[n].default is inspect.Parameter.empty)]
    both = "input_ids" in known and "pixel_values" in known and "return_loss" in known
    needed = ["input_ids", "pixel_values"] if both else needed
    if not needed:
        raise InputError(
            f"the model {type(model).__name__} asks for {main!r}, which is not made up here; give its inputs by the "
            "names of its arguments: --batch inputs.npz"
        )
    number = min(count, MOST) if count is not None else TEXTS if needed[0] == "input_ids" and not both else IMAGES
    batch: dict[str, Any] = {}
    words = []
    labels = torch.zeros(number, dtype=torch.long)
    config: Any = model.config
    for name in needed:
        batch[name], labels, said = made[name](config, number, seed)
        words.append(said)
        if name == "input_ids" and "attention_mask" in known:
            batch["attention_mask"] = torch.ones_like(batch[name])
    note = _label(type(model).__name__, config, batch, labels, known)
    return batch, f"{number} made-up {' and '.join(words)}{note}"


def _label(kind: str, config: Any, batch: dict[str, Any], classes: Tensor, known: Any) -> str:
    """Put what a model of this kind learns into the batch; says if there is nothing that is known to fit."""
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
    usual = [token for token in range(size) if token not in special]
    if len(usual) <= WORDS:
        raise InputError(f"a vocabulary of {size} tokens is too small for texts to be made up; give --batch.")
    return torch.tensor(usual)[torch.linspace(0, len(usual) - 1, WORDS + 1).long()]


def _text(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    text = _part(config, "text")
    longest = [getattr(text, key, None) for key in ("max_position_embeddings", "n_positions", "max_target_positions")]
    length = min(LENGTH, next((n for n in longest if isinstance(n, int) and n > 0), LENGTH))
    words, labels = _vocabulary(config)[:WORDS], _classes(count, CLASSES, seed)
    order = torch.randperm(WORDS, generator=generator(seed, 3))
    start = torch.randint(WORDS, (count, 1), generator=generator(seed, 4))
    places = (start + (2 * labels[:, None] + 1) * torch.arange(length)) % WORDS  # each class goes round at its own step
    return words[order[places]], labels, f"texts of {length} of the model's {int(text.vocab_size)} tokens"


def _image(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    vision = _part(config, "vision")
    size = getattr(vision, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    shape = (int(getattr(vision, "num_channels", 3)), int(height), int(width))
    x, labels = patterned(shape, count, seed=seed)
    return x, labels, f"images {'×'.join(map(str, shape))}"


def _spectrum(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    bins, frames = getattr(config, "num_mel_bins", None), 2 * int(getattr(config, "max_source_positions", None) or 50)
    if not isinstance(bins, int):
        raise InputError("the spectra that this model asks for are not made up here; give --batch inputs.npz")
    x, labels = patterned((1, bins, frames), count, seed=seed)
    return x[:, 0], labels, f"spectra of {bins}×{frames}"


def _sound(config: Any, count: int, seed: int) -> tuple[Tensor, Tensor, str]:
    labels = _classes(count, CLASSES, seed)
    time = torch.arange(SECOND) / SECOND
    tone = torch.sin(2 * math.pi * 220 * 2.0 ** labels[:, None] * time) * math.sqrt(2)
    return tone + 0.3 * torch.randn(count, SECOND, generator=generator(seed, 2)), labels, "sounds of one second"
