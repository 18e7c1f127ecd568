"""The catalogue: every figure and table of the papers as something that runs, and how to find one by its id."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epoch0.arguments import checked
from epoch0.errors import InputError, suggest
from epoch0.experiments.claims import Claim
from epoch0.experiments.experiment import Trial
from epoch0.papers.sweep import Claims, Found, Results, Sweep, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from epoch0.experiments.cost import Cost

_AUTHORS = {
    "price-tanner": "Price & Tanner",
    "raghu": "Raghu et al.",
    "arpit-bengio": "Arpit & Bengio",
    "hanin-rolnick": "Hanin & Rolnick",
    "hayou": "Hayou et al.",
}  # the packages of the papers are named alike; their modules declare figures and tables in ``ARTIFACTS``
_KINDS = {"fig": "Figure", "tab": "Table", "th": "Theorem", "prop": "Proposition"}


@dataclass(frozen=True)
class Artifact:
    """One figure or table of a paper, declared: docs/reproduce.md shows a whole one.

    ``about`` is the line of the heading that says what was measured: a text with names of axes and fields in braces,
    such as ``"{runs} networks of width {width}"``, or a function of the sweep.
    """

    id: str  #: paper and figure, such as ``"price-tanner/fig3b"``
    title: str  #: what it shows, in a few words
    place: str  #: where else in the paper it is told of, such as ``"section 4"``; the rest comes from the id
    presets: Mapping[str, Sweep]  #: ``"quick"`` and ``"paper"`` -> what is run
    table: Callable[[Found], Table]  #: measurements -> tidy rows, later in ``found.table``
    claims: Callable[[Found], Claims]  #: measurements -> the paper's statements, each with what decides it
    draw: Callable[[Found], "Figure"]  #: the same -> a matplotlib figure laid out like the paper's, without heading
    about: str | Callable[[Sweep], str] = ""
    cost: "Callable[[Any], Cost] | None" = None  #: spec -> what one trial costs; None for what trains nothing

    @property
    def source(self) -> str:
        """Where it stands: authors, number and place."""
        paper, _, name = self.id.partition("/")
        kind, number = re.fullmatch(r"([a-z]*)(.*)", name).groups()  # type: ignore[union-attr]
        numbered = f"{_KINDS[kind]} {number}" if kind in _KINDS else ""
        return ", ".join(part for part in (_AUTHORS.get(paper, ""), numbered, self.place) if part)

    @checked
    def setting(self, preset: str) -> Sweep:
        """What that preset runs.

        Raises:
            InputError: if there is no such preset.
        """
        if preset not in self.presets:
            known = ", ".join(self.presets)
            raise InputError(f"{self.id} has no preset {preset!r}; there are {known}.{suggest(preset, self.presets)}")
        return self.presets[preset]

    def trials(self, setting: Sweep) -> list[Trial]:
        """The trials to run."""
        return setting.trials()

    def read(self, setting: Sweep, results: Results) -> Found:
        """The results of the trials in their order, with the table."""
        found = setting.gather(results)
        found.table = self.table(found)
        return found

    def decided(self, setting: Sweep, results: Results) -> "tuple[Table, list[Claim], Callable[[], Figure]]":
        """Table, claims, and what draws the picture."""
        found = self.read(setting, results)
        claims = [decide(text) for text, decide in self.claims(found).items()]
        return found.table, claims, lambda: self.draw(found)

    def caption(self, setting: Sweep) -> str:
        """What was measured."""
        return setting.told(self.about) if isinstance(self.about, str) else self.about(setting)

    def costs(self, setting: Sweep) -> "list[Cost]":
        """What its runs cost, one a configuration, for a dry run."""
        return setting.costs(self.cost) if self.cost else []


def catalogue() -> dict[str, Artifact]:
    """Every artifact by its id, in the order of the papers; within one, figures by their numbers, then the rest.

    >>> sorted(catalogue())[0]
    'arpit-bengio/fig1a'
    """
    found: dict[str, Artifact] = {}
    for paper in _AUTHORS:
        found |= _of(paper)
    return found


@functools.cache
def _of(paper: str) -> dict[str, Artifact]:
    """The artifacts of all modules of a paper."""
    package = f"epoch0.papers.{paper.replace('-', '_')}"
    places = importlib.import_module(package).__path__
    modules = [importlib.import_module(f"{package}.{one.name}") for one in pkgutil.iter_modules(places)]
    declared = {one.id: one for module in modules for one in getattr(module, "ARTIFACTS", ())}
    parts = {id: re.split(r"(\d+)", id) for id in declared}  # fig2 comes before fig10
    order = sorted(parts, key=lambda id: [int(part) if part.isdigit() else part for part in parts[id]])
    return {id: declared[id] for id in order}


@checked
def find(name: str) -> Artifact:
    """The artifact with that id.

    Raises:
        InputError: if there is none; the message names the nearest.
    """
    paper = name.partition("/")[0]
    known = _of(paper) if paper in _AUTHORS else {}  # the other papers stay unread
    if name not in known:
        known = catalogue()
        raise InputError(
            f"there is no artifact {name!r}.{suggest(name, [*known, *_AUTHORS])} "
            "`epoch0 reproduce --list` shows all of them."
        )
    return known[name]


@checked
def expand(name: str) -> list[str]:
    """The ids that a name stands for: one artifact, all of a paper, or ``"all"``.

    >>> expand("price-tanner")[:2]
    ['price-tanner/fig1', 'price-tanner/fig2']

    Raises:
        InputError: if the name stands for nothing.
    """
    known = catalogue()
    if name == "all":
        return list(known)
    if name in _AUTHORS:
        return [key for key in known if key.startswith(f"{name}/")]
    return [find(name).id]
