"""Models of a library by their name there: ``timm:resnet50``, ``torchvision:vit_b_16``, ``hf:path/to/config.json``.

They are built with random weights from code that is installed: nothing is downloaded, and no code that comes with a
configuration is run.
"""

import importlib
import inspect
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from epoch0.errors import InputError, suggest
from epoch0.models.objects import seeded, where

PACKAGES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}
"""What stands before the colon, and the package that it asks for."""

LEFT_OUT = ("model_type", "auto_map", "quantization_config", "dtype", "torch_dtype", "_name_or_path")
"""What a configuration says about files, code and number formats; the model is built without them, in float32."""

TASKS = ("SpeechSeq2Seq", "Seq2SeqLM", "ImageClassification", "AudioClassification", "MaskedLM", "CausalLM")
"""The heads looked for, in this order, when a configuration names no architecture."""


def is_library_model(spec: str) -> bool:
    """Does this name a model of a library?

    >>> is_library_model("timm:resnet50"), is_library_model("nets/small.py:build")
    (True, False)
    """
    source, colon, name = str(spec).partition(":")
    return bool(colon) and bool(name) and source in PACKAGES


def library_model(spec: str, *, seed: int = 0) -> nn.Module:
    """A model of a library, with random weights.

    >>> library_model("timm:resnet50")                          # doctest: +SKIP
    >>> library_model("hf:gpt2/config.json")                    # doctest: +SKIP

    Args:
        spec: see :func:`is_library_model`; of ``hf:`` the rest is a ``config.json`` of transformers, or its folder.
        seed: what the library draws from torch's global generator; the generator is put back.

    Raises:
        InputError: if the package is not installed, or has no such model, or cannot build it.
    """
    source, _, name = spec.partition(":")
    build: dict[str, Callable[[ModuleType, str], Any]] = {
        "timm": _timm, "torchvision": _torchvision, "hf": _transformers
    }  # fmt: skip
    with seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about defaults of the library, which is not the user's code
        package = _package(PACKAGES[source], spec)
        try:
            model = build[source](package, name)
        except InputError:
            raise
        except Exception as problem:
            raise InputError(f"{spec!r} failed while building the model: {where(problem, '')}") from problem
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec!r} gives a {type(model).__name__}; an nn.Module is needed.")
    return model


def _package(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name == name:
            raise InputError(f"{spec!r} needs the package {name}, which is not installed: pip install {name}") from None
        raise InputError(f"the package {name} cannot be imported: {where(problem, '')}") from problem
    except Exception as problem:
        other = " Its release must fit that of torch." if name == "torchvision" else ""
        raise InputError(f"the package {name} cannot be imported: {where(problem, '')}.{other}") from problem


def _timm(timm: Any, name: str) -> Any:
    if not timm.is_model(name):  # also refuses names of a hub, which would be downloaded
        raise InputError(f"timm has no model {name!r}.{suggest(name, timm.list_models())}")
    return timm.create_model(name, pretrained=False)


def _torchvision(torchvision: Any, name: str) -> Any:
    models = importlib.import_module("torchvision.models")
    known = models.list_models()
    if name not in known:
        raise InputError(f"torchvision has no model {name!r}.{suggest(name, known)}")
    # builders for segmentation and detection would download a trained backbone
    names = inspect.signature(models.get_model_builder(name)).parameters
    return models.get_model(name, **{key: None for key in ("weights", "weights_backbone") if key in names})


def _transformers(transformers: Any, name: str) -> Any:
    given = _settings(Path(name))
    kind = given.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"{name!r} names no model_type; give the config.json of a model of transformers.")
    known = list(transformers.CONFIG_MAPPING)
    if kind not in known:
        custom = " It brings its own code, which is not run." if "auto_map" in given else ""
        raise InputError(f"this transformers has no model type {kind!r}.{suggest(kind, known)}{custom}")
    config = transformers.CONFIG_MAPPING[kind].from_dict({k: v for k, v in given.items() if k not in LEFT_OUT})
    if names := given.get("architectures"):
        if (found := getattr(transformers, names[0], None)) is None:
            raise InputError(f"this transformers has no architecture {names[0]!r}, which {name!r} asks for.")
        return found(config)
    tasks = (getattr(transformers, f"AutoModelFor{task}", None) for task in TASKS)
    fitting = (task for task in tasks if task is not None and type(config) in task._model_mapping)
    return next(fitting, transformers.AutoModel).from_config(config)


def _settings(path: Path) -> dict[str, Any]:
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        names = sorted(p.name for p in path.parent.glob("*.json")) if path.parent.is_dir() else []
        raise InputError(
            f"the configuration {str(path)!r} does not exist; nothing is downloaded.{suggest(path.name, names)}"
        )
    try:
        found = json.loads(path.read_text())
    except (ValueError, OSError) as problem:
        raise InputError(f"the configuration {str(path)!r} cannot be read as JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise InputError(f"the configuration {str(path)!r} holds a {type(found).__name__}; it must hold settings.")
    return found
