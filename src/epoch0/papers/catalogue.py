"""The catalogue: every figure and table of the papers as something that runs, and how to find one by its id."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epoch0.errors import InputError, suggest
from epoch0.experiments.claims import Claim
from epoch0.experiments.experiment import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from epoch0.experiments.cost import Cost

Results = Sequence[Mapping[str, Any]]

_PAPERS = {
    "price-tanner": "epoch0.papers.price_tanner",
    "raghu": "epoch0.papers.raghu",
    "arpit-bengio": "epoch0.papers.arpit_bengio",
    "hanin-rolnick": "epoch0.papers.hanin_rolnick",
    "hayou": "epoch0.papers.hayou",
}
"""Paper -> the module whose ``ARTIFACTS`` lists its figures and tables."""


@dataclass(frozen=True)
class Artifact:
    """One figure or table of a paper.

    Its functions are pure: the trials follow from the setting; table, claims and picture from setting and results.

    Attributes:
        id: paper and figure, such as ``"price-tanner/fig3b"``.
        title: what it shows, in a few words.
        source: where it stands in the paper.
        presets: ``"quick"`` and ``"paper"`` -> a setting, a frozen dataclass of the artifact's own.
        trials: setting -> the trials to run.
        table: setting, results in the order of the trials -> tidy rows.
        claims: setting, results -> the paper's statements, decided.
        draw: setting, results -> a matplotlib figure laid out like the paper's; its heading is put above it later.
        data: setting -> name of the data set that the trials load where they run, or None.
        about: setting -> what was measured, in one line for the heading, such as ``"100 networks of width 784"``.
        costs: setting -> what its runs cost, one a configuration, for a dry run; none for what trains nothing.
    """

    id: str
    title: str
    source: str
    presets: Mapping[str, Any]
    trials: Callable[[Any], list[Trial]]
    table: Callable[[Any, Results], list[dict[str, Any]]]
    claims: Callable[[Any, Results], list[Claim]]
    draw: Callable[[Any, Results], "Figure"]
    data: Callable[[Any], str | None] = lambda setting: None
    about: Callable[[Any], str] = lambda setting: ""
    costs: "Callable[[Any], Sequence[Cost]]" = lambda setting: ()

    def setting(self, preset: str) -> Any:
        """The setting of that preset.

        Raises:
            InputError: if there is no such preset.
        """
        if preset not in self.presets:
            known = ", ".join(self.presets)
            raise InputError(f"{self.id} has no preset {preset!r}; there are {known}.{suggest(preset, self.presets)}")
        return self.presets[preset]


def catalogue() -> dict[str, Artifact]:
    """Every artifact by its id, in the order of the papers.

    >>> sorted(catalogue())[0]
    'price-tanner/fig1'
    """
    artifacts = [artifact for module in _PAPERS.values() for artifact in importlib.import_module(module).ARTIFACTS]
    return {artifact.id: artifact for artifact in artifacts}


def find(name: str) -> Artifact:
    """The artifact with that id.

    Raises:
        InputError: if there is none; the message names the nearest.
    """
    known = catalogue()
    if name not in known:
        raise InputError(
            f"there is no artifact {name!r}.{suggest(name, [*known, *_PAPERS])} "
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
    if name in _PAPERS:
        return [key for key in known if key.startswith(f"{name}/")]
    return [find(name).id]
