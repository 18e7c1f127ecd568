"""The catalogue: every figure and table of the papers as a program, and how to find one by its id."""

import functools
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from epoch0.arguments import checked
from epoch0.errors import InputError, suggest
from epoch0.papers.sweep import AUTHORS, KINDS, Artifact


def catalogue() -> dict[str, Artifact]:
    """Every artifact by its id, in the order of the papers; within one, figures by their numbers, then the rest.

    >>> sorted(catalogue())[0]
    'arpit-bengio/fig1a'
    """
    return {id: artifact for paper in AUTHORS for id, artifact in _of(paper).items()}


@functools.cache
def _of(paper: str) -> dict[str, Artifact]:
    package = f"epoch0.papers.{paper.replace('-', '_')}"
    places = importlib.import_module(package).__path__
    modules = [importlib.import_module(f"{package}.{iter_module.name}") for iter_module in pkgutil.iter_modules(places)]
    declared = {item.id: item for module in modules for item in getattr(module, "ARTIFACTS", ())}
    order = sorted(declared, key=lambda id: [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", id)])
    return {id: declared[id] for id in order}


@checked
def find(name: str) -> Artifact:
    """The artifact with that id; an InputError that names the nearest, if there is none."""
    paper = name.partition("/")[0]
    known = _of(paper) if paper in AUTHORS else {}  # other papers are not imported
    if name not in known:
        near = suggest(name, [*catalogue(), *AUTHORS])
        raise InputError(f"there is no artifact {name!r}.{near} `epoch0 reproduce --list` shows all of them.")
    return known[name]


@checked
def expand(name: str) -> list[str]:
    """The ids that a name stands for: one artifact, all of a paper, or ``"all"``.

    >>> expand("price-tanner")[:2]
    ['price-tanner/fig1', 'price-tanner/fig2']

    An InputError if the name stands for nothing.
    """
    return [key for key in catalogue() if name in ("all", key.partition("/")[0])] or [find(name).id]


@dataclass(frozen=True)
class Statement:
    """One theorem, proposition, lemma, corollary, figure or table of a paper."""

    paper: str
    name: str  #: as the paper numbers it, such as ``"Theorem 2"``
    said: str  #: what it says, in our words; of a figure or table its title and what the paper claims with it
    runs: tuple[tuple[str, str], ...]  #: what runs it: ids, each with a text that its claims about this have in common
    erratum: str  #: and what of it was not measured

    def row(self) -> dict[str, str]:
        """Its row in the list of all statements."""
        id = ", ".join(dict.fromkeys(id for id, _ in self.runs))
        row = {"statement": self.name, "in our words": self.said, "id": id}
        row |= {f"{preset} preset": _verdict(self.runs, preset) for preset in ("quick", "paper")}
        return row | {"erratum and limits": self.erratum}


@functools.cache
def statements() -> tuple[Statement, ...]:
    """All that is numbered in the papers, from statements.txt; an id of its own counts all claims, or those named."""
    known, found, paper = catalogue(), [], ""
    short = {name: kind for kind, name in KINDS.items()}
    for line in Path(__file__).with_name("statements.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            paper = line[2:]
            continue
        name, ids, said, erratum = (part.strip() for part in line.split("|"))
        kind, _, number = name.partition(" ")
        own = f"{paper}/{short.get(kind)}{number}"
        pairs = [item.strip().partition(":") for item in ids.split(";") if ids]
        runs = [(f"{paper}/{id}", text.strip()) for id, _, text in pairs]
        runs = [(own, "")] * (own in known and own not in dict(runs)) + runs
        if kind in ("Figure", "Table"):  # what is shown, then what the paper says of it
            said = f"{known[own].titled(known[own].presets['paper'])}. {said}".removesuffix(". ")
        found.append(Statement(paper, name, said, tuple(runs), erratum))
    return tuple(found)


def _verdict(runs: Iterable[tuple[str, str]], preset: str) -> str:
    """How the claims of some ids came out, as verdicts.txt has it, counted by words; only those with a text in them."""
    lines = Path(__file__).with_name("verdicts.txt").read_text("utf-8").splitlines()
    parts, several = [], len({id for id, _ in runs}) > 1
    for id in dict.fromkeys(id for id, _ in runs):
        own = [line.split("\t")[2:] for line in lines if line.startswith(f"{id}\t{preset}\t")]
        wanted = [text for name, text in runs if name == id]
        words = Counter(word for word, claim in own if any(text in claim for text in wanted))
        each = ", ".join(f"{count} {word}" for word, count in words.items())
        parts.append(f"{id.partition('/')[2]}: {each or 'not run'}" if several else each or "not run")
    return "; ".join(parts)
