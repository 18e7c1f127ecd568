"""Hanin-Rolnick's figures as artifacts: their presets, and which table, claims and picture belong to each."""

from collections.abc import Callable
from typing import Any

from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.hanin_rolnick import (
    architectures,
    density,
    distances,
    graph,
    histogram,
    line_counts,
    sawtooth,
    slices,
    slices_training,
)
from epoch0.papers.hanin_rolnick.slices_trial import TrainedSpec

SOURCE = "Hanin & Rolnick"


def _trained(name: str, title: str, where: str, claims: Callable[..., Any], draw: Callable[..., Any]) -> OldArtifact:
    return OldArtifact(
        f"hanin-rolnick/{name}", title, f"{SOURCE}, {where}", architectures.LINES, architectures.trials,
        architectures.table, claims, draw, architectures.data, architectures.about,
    )  # fmt: skip


_GRAPH = {
    "quick": graph.Setting((1, 2, 3, 5), (8, 16, 32), 60),
    "paper": graph.Setting((1, 2, 3, 5), (8, 16, 32, 64), 400),
}


_NOISES = (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_SAWTOOTH = {
    "quick": sawtooth.Setting((1, 2, 3, 4, 5, 6), _NOISES, 40),
    "paper": sawtooth.Setting((1, 2, 3, 4, 5, 6, 7, 8), _NOISES, 200),
}

_DENSITY = {
    "quick": density.Setting(16, ((1, 32), (2, 16), (3, 16), (3, 32), (6, 4)), 150, 100, 1.0),
    "paper": density.Setting(784, ((1, 64), (2, 64), (3, 64), (4, 16), (8, 4)), 400, 200, 14.0),
}
_EARLY = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0)
_SLICES = {
    "quick": slices.Setting("digits", 3, (16, 32, 64, 96), 40, 2),
    "paper": slices.Setting("mnist", 3, (16, 32, 64, 128), 40, 5),
}
_TRAINED_SLICES = {
    "quick": slices_training.Setting(
        TrainedSpec("digits", 3, 64, (*_EARLY, 20.0, 40.0, 60.0), 32, 1e-3, 5, (0.0, 1.0, 10.0, 60.0)), 5
    ),
    "paper": slices_training.Setting(
        TrainedSpec("mnist", 3, 64, (*_EARLY, 15.0, 20.0), 128, 1e-3, 10, (0.0, 1.0, 10.0, 20.0)), 5
    ),
}

ARTIFACTS: tuple[OldArtifact, ...] = (
    OldArtifact(
        "hanin-rolnick/fig1", "Regions in a plane through three examples", f"{SOURCE}, Figure 1", _SLICES,
        slices.trials, slices.table, slices.claims, slices.draw, lambda setting: setting.data, slices.about,
    ),
    OldArtifact(
        "hanin-rolnick/fig3", "A sawtooth of exponentially many pieces, and noise", f"{SOURCE}, Figure 3", _SAWTOOTH,
        sawtooth.trials, sawtooth.table, sawtooth.claims, sawtooth.draw, about=sawtooth.about,
    ),
    OldArtifact(
        "hanin-rolnick/fig4", "The graph of a network from R to R at initialization",
        f"{SOURCE}, Figure 4, section 2.1", _GRAPH, graph.trials, graph.table, graph.claims, graph.draw,
        about=graph.about,
    ),
    _trained("fig5", "Regions on a line through training", "Figure 5, section 3.1", line_counts.claims,
             line_counts.draw),
    _trained("fig6a", "Distance to the nearest boundary, and the number of neurons", "Figure 6a, section 3.2",
             distances.claims_a, distances.draw_a),
    _trained("fig6b", "Distance to the nearest boundary through training", "Figure 6b, section 3.2",
             distances.claims_b, distances.draw_b),
    _trained("fig6c", "Distance to the nearest boundary, and accuracy", "Figure 6c, section 3.2",
             distances.claims_c, distances.draw_c),
    OldArtifact(
        "hanin-rolnick/fig7", "Distances to the nearest boundary, all of them", f"{SOURCE}, Figure 7, section 3.2",
        architectures.HISTOGRAM, architectures.trials, histogram.table, histogram.claims, histogram.draw,
        architectures.data, architectures.about,
    ),
    OldArtifact(
        "hanin-rolnick/fig8", "Regions in a plane through three examples, through training",
        f"{SOURCE}, Figure 8, section 3.3", _TRAINED_SLICES, slices_training.trials, slices_training.table,
        slices_training.claims, slices_training.draw, lambda setting: setting.spec.data, slices_training.about,
    ),
    OldArtifact(
        "hanin-rolnick/th3", "Theorem 3 against exact counts", f"{SOURCE}, Theorem 3, section 5", _DENSITY,
        density.trials, density.table, density.claims, density.draw, about=density.about,
    ),
)  # fmt: skip
"""In the order of the paper. Figures 5 to 7 share their runs."""
