"""Models and activations named on the command line, ``package.module:name`` or ``path/file.py:name``: run, not read.

Or a library's model. Weights come as safetensors only: a ``.pt`` file, a pickle, would run code and is refused.
"""

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from epoch0.activations import Activation, get
from epoch0.arguments import Seed, checked
from epoch0.errors import InputError, reworded, suggest
from epoch0.files import explained, to_read
from epoch0.initialization.files import read_tensors
from epoch0.results import first_names
from epoch0.seeds import generator
from epoch0.tracing.call import joined, parts
from epoch0.tracing.guard import draw_anew, streams_kept

SHOWN = 4  # how many names an error lists
EXAMPLES = 100  # examples in the batch of a program that names its data only
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")  # endings of pickled weights; none is ever opened
# what a configuration says about files, code and number formats; the model is built without them, in float32
LEFT_OUT = ("model_type", "auto_map", "quantization_config", "dtype", "torch_dtype", "_name_or_path")
# the heads looked for, in this order, when a configuration names no architecture
TASKS = ("SpeechSeq2Seq", "Seq2SeqLM", "ImageClassification", "AudioClassification", "MaskedLM", "CausalLM")

PARTS = ("model", "batch", "targets", "loss", "optimizer", "data", "step")
"""What a function that builds a whole program may return by name; the first is needed, and batch or data."""


@checked
def load_program(spec: str, weights: str | Path | None = None, *, seed: Seed = 0) -> dict[str, Any]:
    """The model that a command-line name stands for, or the whole program that a function of that name returns.

    >>> load_program("torch.nn:Identity")
    {'model': Identity()}
    >>> sorted(load_program("train.py:build"))                                # doctest: +SKIP
    ['data', 'loss', 'model', 'optimizer']

    A program is a mapping of :data:`PARTS`, as :func:`epoch0.checkup` takes them; without a batch it is the first 100
    examples of ``data``. Arguments and errors as of :func:`load_model`.
    """
    for given, instead in ((spec, "the model as 'path/file.py:callable'"), (weights, "the architecture as the model")):
        if (path := Path(given or "")).suffix.lower() in PICKLED:
            text = f"{str(path)!r} is a pickled file, and opening one runs whatever code is inside, so it is never read"
            loaded = f'torch.load("{path.name}", weights_only=True)'
            saved = f'safetensors.torch.save_file({loaded}, "{path.stem}.safetensors")'
            raise InputError(f"{text}. Give {instead}, with the weights as safetensors: {saved}")
    if weights is not None:
        to_read(weights, "weights")
    source, _, name = str(spec).partition(":")
    made: Any
    if name and source in LIBRARIES:
        made = library_model(spec, seed=seed)
    else:
        with named_object(spec, "model", seed=seed) as (target, file):
            made = _build(target, spec, file)
    program = dict(made) if isinstance(made, Mapping) else {"model": made}
    if not isinstance(program.get("model"), nn.Module):
        raise InputError(f"{spec!r} returned {type(program.get('model', made)).__name__!r}; an nn.Module is needed.")
    unknown = [str(name) for name in program if name not in PARTS]
    if unknown or (len(program) > 1 and not {"batch", "data"} & program.keys()):
        wanted = f"a mapping with model, batch or data, and what there is of {', '.join(PARTS[2:])}"
        raise InputError(f"{spec!r} returned {', '.join(map(str, program))}; a program is {wanted}.")
    if weights is not None:
        _load_weights(program["model"], Path(weights))
    program = {name: part for name, part in program.items() if part is not None}
    return program if len(program) == 1 or "batch" in program else program | _first(program["data"], spec)


def _first(data: Any, spec: str) -> dict[str, Any]:
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], torch.Tensor):
        return {"batch": data[0][:EXAMPLES], "targets": data[1][:EXAMPLES]}
    items: list[Any] = []
    if isinstance(data, Iterator):
        raise InputError(f"the data of {spec!r} are a {type(data).__name__}, which ends once read; give a DataLoader.")
    again = inspect.isfunction(data) or isinstance(data, DataLoader | tuple | list)
    loader = (data() if inspect.isfunction(data) else data) if again else DataLoader(data, EXAMPLES, shuffle=True)
    with seeded(0):
        for item in loader:
            items.append(item)
            if sum(len(next(iter(parts(each)), ("", ()))[1]) for each in items) >= EXAMPLES:
                break
    if not items:
        raise InputError(f"the data of {spec!r} are empty: not one batch comes out (too few, and drop_last=True?).")
    pairs = [item for item in items if isinstance(item, tuple | list) and len(item) > 1]
    inputs = [pair[0] if len(pair) == 2 else tuple(pair[:-1]) for pair in pairs]
    found = {"batch": joined(inputs, EXAMPLES), "targets": joined([pair[-1] for pair in pairs], EXAMPLES)}
    if all(isinstance(item, Mapping) for item in items):  # labels are among them
        found = {"batch": joined(items, EXAMPLES)}
    if any(side is None for side in found.values()):
        raise InputError(f"the data of {spec!r} do not give pairs (inputs, targets); return the batch by name as well.")
    return found


@checked
def load_model(spec: str, weights: str | Path | None = None, *, seed: Seed = 0) -> nn.Module:
    """The module that a command-line name stands for.

    >>> load_model("torch.nn:Identity")
    Identity()
    >>> load_model("nets/small.py:build", weights="small.safetensors")        # doctest: +SKIP

    An InputError for each way in which this can fail names the file, line, name or weight.

    Args:
        spec: ``package.module:callable`` or ``path/file.py:callable``: a function returning a module, a subclass of
            ``nn.Module``, or a module itself, called without arguments; see :func:`named_object`. Or a model of a
            library with random weights, see :func:`library_model`: ``timm:resnet50``.
        weights: a safetensors file with exactly the names and shapes of the model's state.
    """
    return load_program(spec, weights, seed=seed)["model"]  # type: ignore[no-any-return]


def _build(target: Any, spec: str, file: str) -> Any:
    if isinstance(target, nn.Module):
        return target
    if not callable(target):
        raise InputError(f"{spec!r} is a {type(target).__name__}; give an nn.Module, its class, or a function of it.")
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # compiled callables have no signature; calling them shows it
        parameters = []
    single = (p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    if needed := [p.name for p in single if p.default is p.empty]:
        text = f"{spec!r} needs {'the argument' if len(needed) == 1 else 'the arguments'} {', '.join(needed)}"
        raise InputError(f"{text}; it is called without any, so add a function that fills them in and name that one.")
    try:
        return target()
    except (Exception, SystemExit) as problem:
        raise InputError(f"{spec!r} failed while building the model: {where(problem, file)}") from problem


def _load_weights(model: nn.Module, path: Path) -> None:
    given, own = read_tensors(path, "weights")[0], model.state_dict()
    # safetensors stores a tensor that is shared once, under one name
    stored = {own[name].data_ptr() for name in given if name in own and own[name].numel()}
    both = {name: (given[name].shape, tensor.shape) for name, tensor in own.items() if name in given}
    wrong = {
        "missing": [name for name in own if name not in given and own[name].data_ptr() not in stored],
        "unexpected": [name for name in given if name not in own],
        "of another shape": [f"{n} is {tuple(a)}, the model's {tuple(b)}" for n, (a, b) in both.items() if a != b],
    }
    problems = [f"{len(names)} {word}: {first_names(names, SHOWN, '; ')}" for word, names in wrong.items() if names]
    if problems:
        counts = f"{len(own)} tensors wanted, {len(given)} given"
        raise InputError(f"the weights in {str(path)!r} do not fit the model ({counts}): {', '.join(problems)}.")
    model.load_state_dict(given, strict=False)


def library_model(spec: str, *, seed: int = 0) -> nn.Module:
    """A model of a library, with random weights.

    Built from code that is installed: nothing is downloaded, and no code that comes with a configuration is run. Of
    ``hf:`` the rest is a ``config.json`` of transformers, or its folder.
    """
    source, _, name = spec.partition(":")
    needed = "transformers" if source == "hf" else source
    # warnings about defaults of the library are not for the user's code
    with seeded(seed), warnings.catch_warnings(action="ignore"):
        missing = f"{spec!r} needs the package {needed}, which is not installed: pip install {needed}"
        hint = ". Its release must fit that of torch." if needed == "torchvision" else ""
        package = imported(needed, missing, "package", hint)
        with reworded(lambda problem: InputError(f"{spec!r} failed while building the model: {where(problem, '')}")):
            model = LIBRARIES[source](package, name)
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec!r} gives a {type(model).__name__}; an nn.Module is needed.")
    return model


def _timm(timm: Any, name: str) -> Any:
    if not timm.is_model(name):  # also refuses names of a hub, which would be downloaded
        raise InputError(f"timm has no model {name!r}.{suggest(name, timm.list_models())}")
    return timm.create_model(name, pretrained=False)


def _torchvision(torchvision: Any, name: str) -> Any:
    models = importlib.import_module("torchvision.models")
    if name not in (known := models.list_models()):
        raise InputError(f"torchvision has no model {name!r}.{suggest(name, known)}")
    # builders for segmentation and detection would download a trained backbone
    names = inspect.signature(models.get_model_builder(name)).parameters
    return models.get_model(name, **{key: None for key in ("weights", "weights_backbone") if key in names})


def _transformers(transformers: Any, name: str) -> Any:
    noun, path = "configuration (nothing is downloaded)", Path(name)
    path = to_read(path / "config.json" if os.path.isdir(path) else path, noun)
    with reworded(lambda problem: InputError(f"the configuration {str(path)!r} cannot be read as JSON: {problem}")):
        given = json.loads(path.read_text())
    if not isinstance(given, dict):
        raise InputError(f"the configuration {str(path)!r} holds a {type(given).__name__}; it must hold settings.")
    if not isinstance(kind := given.get("model_type"), str):
        raise InputError(f"{name!r} names no model_type; give the config.json of a model of transformers.")
    if kind not in (known := list(transformers.CONFIG_MAPPING)):
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


# what stands before the colon, and what builds a model with the package that it asks for
LIBRARIES = {"timm": _timm, "torchvision": _torchvision, "hf": _transformers}


@checked
def load_activation(spec: str) -> Activation:
    """The activation that a command-line name stands for.

    >>> load_activation("tanh").name
    'tanh'
    >>> load_activation("nets/phi.py:swoosh")                   # doctest: +SKIP

    A name that :func:`epoch0.activations.get` knows, or ``path/file.py:function`` or ``package.module:function``: an
    elementwise function of a tensor, a module, or a class of them; an InputError for anything else.
    """
    if ":" not in spec:
        return get(spec)
    with named_object(spec, "activation") as (found, file):
        try:
            made = found() if inspect.isclass(found) and issubclass(found, nn.Module) else found
        except (Exception, SystemExit) as problem:
            raise InputError(f"{spec!r} failed while it was made: {where(problem, file)}") from problem
        if not isinstance(made, Activation) and not callable(made):
            raise InputError(f"{spec!r} is a {type(made).__name__}; an elementwise function of a tensor is needed.")
        return get(made)


@contextlib.contextmanager
def named_object(spec: str, noun: str, *, seed: int = 0) -> Iterator[tuple[Any, str]]:
    """Import the object of a command-line name, in a context in which it may be called.

    Inside, the file's neighbours can be imported, torch's global generator starts from the seed (and is put back
    afterwards), and what the user's code prints goes to stderr. Packages are looked for in the working directory too.
    ``what`` it is to be is for errors. Gives the object, and the file or module it came from, for :func:`where`.
    """
    source, colon, attribute = str(spec).rpartition(":")
    if not colon or not source or not attribute or "/" in attribute or "\\" in attribute:
        raise InputError(f"the {noun} {spec!r} names no callable; write 'path/file.py:callable' or 'package:callable'.")
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    with explained(source, noun, "read"):
        folder = str(Path(source).resolve().parent if is_file else Path.cwd())
    sys.path.insert(0, folder)
    try:
        with seeded(seed):
            missing = f"there is no module {{!r}} here (for the {noun} {source!r}); install its package, run from its "
            missing += "folder, or name a file: 'path/file.py:callable'."
            module = _import_file(Path(source), noun) if is_file else imported(source, missing)
            yield _attribute(module, source, attribute), Path(source).name if is_file else source
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run foreign code with torch's global generator at a seed, restored afterwards; what it prints goes to stderr."""
    start = int(generator(seed).initial_seed() % 2**63)
    with streams_kept(), contextlib.redirect_stdout(sys.stderr):
        draw_anew(start)
        yield


def _import_file(path: Path, noun: str) -> ModuleType:
    to_read(path, noun)
    name = f"epoch0_model_{path.stem}"
    if (found := importlib.util.spec_from_file_location(name, path)) is None or found.loader is None:
        raise InputError(f"the {noun} file {str(path)!r} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(found)
    # dataclasses and pickling inside the user's file look their own module up by name
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise InputError(f"the {noun} file {str(path)!r} cannot be imported: {where(problem, path.name)}") from problem
    return module


def imported(source: str, missing: str, noun: str = "module", hint: str = "") -> ModuleType:
    """A module by its name; an InputError, ``missing`` where it is not there."""
    try:
        return importlib.import_module(source)
    except (Exception, SystemExit) as problem:
        lost = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if lost and (source == lost or source.startswith(lost + ".")):
            raise InputError(missing.format(lost)) from problem
        raise InputError(f"the {noun} {source!r} cannot be imported: {where(problem, '')}{hint}") from problem


def where(problem: BaseException, file: str) -> str:
    """File and line at which the user's code failed: the innermost frame of its file, not of a library below it."""
    text = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
    if isinstance(problem, SyntaxError):
        return f"{Path(problem.filename or file).name}, line {problem.lineno}: SyntaxError: {problem.msg}"
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if not f.filename.startswith("<frozen")]
    frames = [f for f in frames if Path(f.filename) != Path(__file__)] or frames
    own = [f for f in frames if Path(f.filename).name == file] or frames[-1:]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {text}" if own else text


def _attribute(module: ModuleType, source: str, attribute: str) -> Any:
    value: Any = module

    def meant(one: Any) -> bool:  # of the names that the user's module itself defines
        maker = inspect.isfunction(one) or (inspect.isclass(one) and issubclass(one, nn.Module))
        return isinstance(one, nn.Module) or (maker and one.__module__ == module.__name__)

    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [name for name in vars(value) if not name.startswith("_")]
            own = [name for name in known if meant(getattr(value, name))]
            offer = suggest(part, known) or (f" It defines {', '.join(own[:SHOWN])}." if own else "")
            raise InputError(f"{source!r} has no {part!r}.{offer}")
        value = getattr(value, part)
    return value
