"""The catalogue: every figure and table of the papers as something that runs, and how to find one by its id."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    Attributes:
        id: paper and figure, such as ``"price-tanner/fig3b"``.
        title: what it shows, in a few words.
        place: where else in the paper it is told of, such as ``"section 4"``; number and authors come from the id.
        presets: ``"quick"`` and ``"paper"`` -> what is run.
        table: measurements -> tidy rows.
        claims: measurements -> the paper's statements, each with what decides it; the rows are in ``found.table``.
        draw: the same -> a matplotlib figure laid out like the paper's; its heading is put above it later.
        about: what was measured, in one line for the heading: a text with the names of axes and fields in braces, such
            as ``"{runs} networks of width {width}"``, or a function of the sweep.
        cost: spec -> what one trial costs, without trials; None for what trains nothing.
    """

    id: str
    title: str
    place: str
    presets: Mapping[str, Sweep]
    table: Callable[[Found], Table]
    claims: Callable[[Found], Claims]
    draw: Callable[[Found], "Figure"]
    about: str | Callable[[Sweep], str] = ""
    cost: "Callable[[Any], Cost] | None" = None

    @property
    def source(self) -> str:
        """Where it stands: authors, number and place."""
        paper, _, name = self.id.partition("/")
        kind, number = re.fullmatch(r"([a-z]*)(.*)", name).groups()  # type: ignore[union-attr]
        numbered = f"{_KINDS[kind]} {number}" if kind in _KINDS else ""
        return ", ".join(part for part in (_AUTHORS.get(paper, ""), numbered, self.place) if part)

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

    def data(self, setting: Sweep) -> str | None:
        """Name of the data set that the trials load where they run."""
        return setting.data

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
        found |= _declared(f"epoch0.papers.{paper.replace('-', '_')}")
    return found


@functools.cache
def _declared(package: str) -> dict[str, Artifact]:
    """The artifacts of all modules of a paper."""
    places = importlib.import_module(package).__path__
    modules = [importlib.import_module(f"{package}.{one.name}") for one in pkgutil.iter_modules(places)]
    declared = [artifact for module in modules for artifact in getattr(module, "ARTIFACTS", ())]
    return {artifact.id: artifact for artifact in sorted(declared, key=lambda one: _place(one.id))}


def _place(id: str) -> list[Any]:
    """Sorts fig2 before fig10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", id)]


def find(name: str) -> Artifact:
    """The artifact with that id.

    Raises:
        InputError: if there is none; the message names the nearest.
    """
    known = catalogue()
    if name not in known:
        raise InputError(
            f"there is no artifact {name!r}.{suggest(name, [*known, *_AUTHORS])} "
            "`epoch0 reproduce --list` shows all of them."
        )
    return known[name]


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
