"""Every example in a docstring runs and prints what it says.

An example may use, without importing them, the names of its own module, what its room exports, the public names of
epoch0, and what a reader would have at hand: see `at_hand`. `net` and everything else is made anew for each docstring.
"""

import doctest
import functools
import importlib
import inspect
import pkgutil
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import epoch0 as e0

LATER = ("__main__",)
ROOMS = ["epoch0", *(module.name for module in pkgutil.iter_modules(e0.__path__) if module.name not in LATER)]


def modules(room: str) -> Iterator[ModuleType]:
    found = importlib.import_module("epoch0" if room == "epoch0" else f"epoch0.{room}")
    yield found
    for part in pkgutil.walk_packages(getattr(found, "__path__", []) if found is not e0 else [], f"{found.__name__}."):
        yield importlib.import_module(part.name)


def exported(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in getattr(module, "__all__", [])}


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    found = e0.data.load("digits")
    return torch.from_numpy(found.inputs("standard"))[:100], torch.from_numpy(found.labels)[:100]


def at_hand() -> dict[str, Any]:
    """A small network, a labelled batch of real digits, two of its points, batches, scores and masks."""
    images, labels = (each.clone() for each in digits())
    net, model = (e0.networks.mlp([64, 32, 32, 10], seed=0) for _ in range(2))
    scores = e0.prune.magnitude(net)
    return {
        "e0": e0,
        "epoch0": e0,
        "torch": torch,
        "nn": nn,
        "F": F,
        "np": np,
        "functools": functools,
        "Path": Path,
        "net": net,
        "model": model,
        "scores": scores,
        "masks": e0.prune.keep(scores, sparsity=0.5),
        "images": images,
        "labels": labels,
        "x": images,
        "y": labels,
        "x0": images[0],
        "x1": images[1],
        "batches": [(images[:50], labels[:50]), (images[50:], labels[50:])],
    }


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("room", ROOMS)
def test_examples(room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    public, *parts = list(modules(room))
    for module in [public, *parts]:
        for examples in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
            if examples.examples:
                examples.globs = {**at_hand(), **exported(e0), **exported(public), **vars(module)}
                for seed in (random.seed, np.random.seed, torch.manual_seed):
                    seed(0)
                runner.run(examples, out=failures.append)
    assert not failures, "\n".join(failures)


API = (Path(__file__).parent.parent / "docs/api.md").read_text()
PAGES = re.findall(r"automodule:: (\S+)((?:\n   :.*)*)", API)
OFFERING = ["epoch0", *(name for name, _ in PAGES)]


def examples(text: str, name: str) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(text, {}, name, None, 0)


def offered(module: ModuleType, options: str) -> list[str]:
    """The names that a module lists, or else its own functions and classes but those that the page leaves out."""
    left = re.findall(r"\w+", options.partition(":exclude-members:")[2])
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return getattr(module, "__all__", [name for name in own if name[0] != "_" and name not in left])


def undocumented(page: str, described: list[tuple[str, str]], offering: list[str]) -> set[str]:
    """Public names that the page does not describe, or that have no example in their docstring or on the page."""
    found = set()
    shown = "".join(one.source for one in examples(page, "page").examples)
    rooms = {name: importlib.import_module(name) for name, _ in described}
    for room in offering:
        for name in offered(importlib.import_module(room), dict(PAGES).get(room, "")):
            value = getattr(importlib.import_module(room), name)
            if inspect.ismodule(value):
                there = any(one == value.__name__ or one.startswith(f"{value.__name__}.") for one in rooms)
                example = there
            else:
                home = getattr(value, "__module__", room)
                lists = [rooms[one].__all__ for one, more in described if "imported" in more]
                there = home in rooms or any(name in each for each in lists)
                # a value has no docstring of its own, so the page has to show it
                own = inspect.isclass(value) or inspect.isfunction(value)
                written = own and any(one.examples for one in doctest.DocTestFinder().find(value, name))
                example = bool(written or re.search(rf"\b{name}\b", shown))
            if not (there or re.search(rf"\b{name}\b", shown)) or not example:
                found.add(f"{room}.{name}")
    return found


def test_the_api_page_has_every_public_name_with_an_example() -> None:
    assert len(OFFERING) > 20
    assert not undocumented(API, PAGES, OFFERING)
    less = [page for page in PAGES if page[0] != "epoch0.prune"]
    assert {"epoch0.prune", "epoch0.prune.keep"} <= undocumented(API, less, [*OFFERING, "epoch0.prune"])
    assert "epoch0.prune.MaskSummary" in undocumented(API.replace("MaskSummary", ""), PAGES, OFFERING)


@pytest.mark.usefixtures("in_this_process")
def test_examples_of_the_api_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    for number, block in enumerate(re.findall(r"```pycon\n(.*?)```", API, flags=re.DOTALL)):
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        given = examples(block, f"api.md, block {number}")
        given.globs = at_hand()
        doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(given, out=failures.append)
    assert not failures, "\n".join(failures)
