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
from functools import partial
from typing import Any

from epoch0.experiments.claims import Claim, equal_within_error
from epoch0.papers.catalogue import Artifact
from epoch0.papers.hayou import accuracy
from epoch0.papers.hayou.accuracy import (
    accuracies,
    ahead,
    compared,
    joined,
    lead,
    measured_winner,
    panel,
    panels_of,
    percent,
    sparsities_of,
    title,
)
from epoch0.papers.hayou.recipe import METHODS, Network, Recipe
from epoch0.papers.sweep import Found, Sweep, Table, mean_and_error

OURS = "eoc-rescaling"
OTHERS = ("snip", "synflow")
SIMILAR = 0.01
"""Relative size of a difference that would show where the paper says that methods perform similarly."""

NOT_MUCH = 1.0
"""Points by which 3xVGG16 may be ahead where the paper sees no great improvement."""


def claims(found: Found) -> list[Claim]:
    """Section 4.3: on VGG16 the three are alike, on 3xVGG16 rescaling wins."""
    once, thrice = panels_of(found)
    runs, sparsities = thrice.sweep["runs"], sparsities_of(thrice)
    names = [each.sweep.spec.network.name for each in (once, thrice)]
    leads = {
        f"{METHODS[other].label}, {percent(s)}": (lead(thrice, OURS, other, s), lead(once, OURS, other, s))
        for other in OTHERS
        for s in sparsities
    }
    gained = {percent(s): (accuracies(thrice, OURS, s), accuracies(once, OURS, s)) for s in sparsities}
    label = METHODS[OURS].label
    return [
        _similar(once),
        *(
            compared(f"{title(thrice.sweep.spec)}: {label} is ahead of {METHODS[other].label}",
                     ahead(thrice, OURS, other, sparsities), runs)
            for other in OTHERS
        ),
        compared(
            f"the larger the blocks between pools, the better rescaling does: its lead is larger on {names[1]}", leads,
            runs,
        ),
        compared(
            f"{names[1]} does not improve much on {names[0]} ({label}): by {NOT_MUCH:g} point or less", gained, runs,
            NOT_MUCH, most=True,
        ),
    ]  # fmt: skip


def _similar(found: Found) -> Claim:
    methods, sparsities = (*OTHERS, OURS), sparsities_of(found)
    each = [[mean_and_error(accuracies(found, method, s)) for method in methods] for s in sparsities]
    return equal_within_error(
        f"{title(found.sweep.spec)}: the three methods perform similarly",
        [[one.mean for one in row] for row in each], [[one.error for one in row] for row in each],
        found.sweep["runs"], resolution=SIMILAR, settings=[percent(s) for s in sparsities],
        groups=[METHODS[method].label for method in methods],
    )  # fmt: skip


def table(found: Found) -> Table:
    """The rows of all accuracy tables; ``best`` marks the best method of a network and sparsity, or those that tie."""
    marks: dict[tuple[str, float, str], str] = {}
    for each in panels_of(found):
        for sparsity in sparsities_of(each):
            best = measured_winner(each, sparsity)
            for method in (best.best, *best.tied):
                label = METHODS[method].label
                marks[each.sweep.spec.network.name, sparsity, label] = "tie" if best.tied else "best"
    rows = accuracy.table("tab5", found)
    return Table({**row, "best": marks.get((row["network"], row["sparsity"], row["method"]), "")} for row in rows)


def about(sweep: Sweep) -> str:
    """The setting in one line."""
    each = [sweep.spec, *(one.spec for one in sweep.also.values())]
    names = " and ".join(recipe.network.name for recipe in each)
    enlarged = ", every pixel 2x2" if sweep.spec.data == "digits" else ""
    return sweep.told(
        f"{names}, filters times {sweep.spec.network.width:g}, circular padding, on {{data}}{enlarged}; "
        "{epochs} epochs of SGD at {learning_rate:g}, batches of {batch_size}; EOC + rescaling is scored and rescaled "
        "without batch norm, the others with it in {batch_norm} mode; {runs} runs; bars: two standard errors"
    )


def _panels(
    data: str, depth: int, width: float, sparsities: Sequence[float], epochs: int, batch_size: int, runs: int,
    **more: Any,
) -> list[Sweep]:  # fmt: skip
    networks = [Network("vgg", depth, width, repeat=repeat, padding="circular") for repeat in (1, 3)]
    bases = [Recipe(each, data, "snip", 0.5, epochs, batch_size, norm_after=True, **more) for each in networks]
    return [panel(base, (*OTHERS, OURS), sparsities, runs) for base in bases]


PANELS = {
    "quick": _panels(
        "digits", 11, 1 / 8, (0.9,), 5, 32, 7, augment=False, synflow_steps=30, learning_rate=0.03, drops=(0.8,)
    ),
    "paper": _panels("cifar10", 16, 1.0, (0.85, 0.9, 0.95), 160, 128, 3),
}
"""The two networks of both presets; those of the paper for Table 6 too."""

ARTIFACTS = (
    Artifact(
        "hayou/tab5", "Accuracy of pruned VGG16 and 3xVGG16", "Hayou et al., Table 5, section 4.3",
        {preset: joined(panels) for preset, panels in PANELS.items()}, table, claims, partial(accuracy.draw, "tab5"),
        about, accuracy.cost,
    ),
)  # fmt: skip
