"""Hayou Table 5: VGG16, and 3xVGG16 with thrice the convolutions between its pools (section 4.3).

What the paper leaves open is taken from public code of two of its authors: circular padding; batch norm behind every
convolution; EOC + rescaling is scored and rescaled without batch norm, which is added for the training, while SNIP and
SynFlow see the network that is trained. Behind batch norm the size of a layer's weights does not change what the layer
computes: rescaling decides how large a step of a given learning rate is, and the masks differ by how they were scored.

The quick preset has VGG11 and 3xVGG11 in their places, with an eighth of the filters, on digits, every pixel a square
of 2x2 for the pools: 3xVGG16 does not train on them in a few epochs, not even unpruned. Networks, epochs, learning rate
and where it falls were chosen after looking at runs with other seeds, see docs/hayou-accuracy.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from epoch0.experiments.claims import Claim, at_least, at_most, equal_within_error
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou import accuracy, accuracy_costs, accuracy_picture
from epoch0.papers.hayou.accuracy import Cells, Panel, Setting, gather
from epoch0.papers.hayou.accuracy_claims import gaps, percent
from epoch0.papers.hayou.accuracy_winners import measured_winner
from epoch0.papers.hayou.recipe import METHODS, Network, Recipe
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from epoch0.papers.hayou.accuracy import Array

OURS = "eoc-rescaling"
OTHERS = ("snip", "synflow")
SIMILAR = 0.01
"""Relative size of a difference that would show where the paper says that methods perform similarly."""

NOT_MUCH = 1.0
"""Points by which 3xVGG16 may be ahead where the paper sees no great improvement."""


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 4.3: on VGG16 the three are alike, on 3xVGG16 rescaling wins."""
    (once, cells), (thrice, more) = zip(setting.panels, gather(setting.panels, results), strict=True)
    return [
        _similar(once, cells),
        *(_ahead(thrice, more, other) for other in OTHERS),
        _larger_blocks(thrice, cells, more),
        _no_great_gain(once, thrice, cells, more),
    ]


def _similar(panel: Panel, cells: Cells) -> Claim:
    methods = (*OTHERS, OURS)
    found = [[mean_and_error(cells[method, s].accuracy) for method in methods] for s in panel.sparsities]
    return equal_within_error(
        f"{panel.title}: the three methods perform similarly",
        [[mean for mean, _ in row] for row in found], [[error for _, error in row] for row in found], panel.runs,
        resolution=SIMILAR, settings=[percent(s) for s in panel.sparsities],
        groups=[METHODS[method].label for method in methods],
    )  # fmt: skip


def _ahead(panel: Panel, cells: Cells, other: str) -> Claim:
    pairs = {percent(s): (cells[OURS, s].accuracy, cells[other, s].accuracy) for s in panel.sparsities}
    means, errors, names = gaps(pairs)
    text = f"{panel.title}: EOC + rescaling is ahead of {METHODS[other].label}"
    return at_least(text, means, errors, 0.0, panel.runs, names)


def _larger_blocks(panel: Panel, cells: Cells, more: Cells) -> Claim:
    pairs = {
        f"{METHODS[other].label}, {percent(s)}": (_lead(more, other, s), _lead(cells, other, s))
        for other in OTHERS
        for s in panel.sparsities
    }
    means, errors, names = gaps(pairs)
    name = panel.base.network.name
    text = f"the larger the blocks between pools, the better rescaling does: its lead is larger on {name}"
    return at_least(text, means, errors, 0.0, panel.runs, names)


def _no_great_gain(once: Panel, panel: Panel, cells: Cells, more: Cells) -> Claim:
    pairs = {percent(s): (more[OURS, s].accuracy, cells[OURS, s].accuracy) for s in panel.sparsities}
    means, errors, names = gaps(pairs)
    names_of = (panel.base.network.name, once.base.network.name)
    text = f"{names_of[0]} does not improve much on {names_of[1]} (EOC + rescaling): by {NOT_MUCH:g} point or less"
    return at_most(text, means, errors, NOT_MUCH, panel.runs, names)


def _lead(cells: Cells, other: str, sparsity: float) -> "Array":
    lead: Array = cells[OURS, sparsity].accuracy - cells[other, sparsity].accuracy
    return lead


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """The rows of all accuracy tables; ``best`` marks the best method of a network and sparsity, or those that tie."""
    rows = accuracy.table(setting, results)
    marks: dict[tuple[str, float, str], str] = {}
    for panel, cells in zip(setting.panels, gather(setting.panels, results), strict=True):
        for sparsity in panel.sparsities:
            found = measured_winner(cells, sparsity)
            for method in (found.best, *found.tied):
                mark = "tie" if found.tied else "best"
                marks[panel.base.network.name, sparsity, METHODS[method].label] = mark
    return [{**row, "best": marks.get((row["network"], row["sparsity"], row["method"]), "")} for row in rows]


def about(setting: Setting) -> str:
    """The setting in one line."""
    base, runs = setting.panels[0].base, setting.panels[0].runs
    enlarged = ", every pixel 2x2" if base.data == "digits" else ""
    names = " and ".join(panel.base.network.name for panel in setting.panels)
    return (
        f"{names}, filters times {base.network.width:g}, circular padding, on {base.data}{enlarged}; "
        f"{base.epochs} epochs of SGD at {base.learning_rate:g}, batches of {base.batch_size}; "
        f"EOC + rescaling is scored and rescaled without batch norm, the others with it in {base.batch_norm} mode; "
        f"{runs} runs; bars: two standard errors"
    )


def _panels(
    data: str, depth: int, width: float, sparsities: Sequence[float], epochs: int, batch_size: int, runs: int,
    printed: str | None, **more: Any,
) -> tuple[Panel, ...]:  # fmt: skip
    bases = [
        Recipe(
            Network("vgg", depth, width, repeat=repeat, padding="circular"), data, "snip", 0.5, epochs, batch_size,
            norm_after=True, **more,
        )
        for repeat in (1, 3)
    ]  # fmt: skip
    return tuple(Panel(base, (*OTHERS, OURS), tuple(sparsities), runs, printed) for base in bases)


PANELS: dict[str, tuple[Panel, ...]] = {
    "quick": _panels(
        "digits", 11, 1 / 8, (0.9,), 5, 32, 7, None, augment=False, synflow_steps=30, learning_rate=0.03, drops=(0.8,)
    ),
    "paper": _panels("cifar10", 16, 1.0, (0.85, 0.9, 0.95), 160, 128, 3, "tab5"),
}
"""The two networks of both presets; those of the paper for Table 6 too."""

ARTIFACT = OldArtifact(
    "hayou/tab5", "Accuracy of pruned VGG16 and 3xVGG16", "Hayou et al., Table 5, section 4.3",
    {preset: Setting(panels, "tab5", 0.85) for preset, panels in PANELS.items()}, accuracy.trials, table, claims,
    accuracy_picture.draw, accuracy.data, about, accuracy_costs.costs,
)  # fmt: skip
