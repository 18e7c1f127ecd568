"""Hanin-Rolnick's figures as artifacts: their presets, and which table, claims and picture belong to each."""

from collections.abc import Callable
from typing import Any

from epoch0.papers.catalogue import Artifact
from epoch0.papers.hanin_rolnick import architectures, distances, graph, histogram, layers, line_counts, sawtooth

SOURCE = "Hanin & Rolnick"


def _trained(name: str, title: str, where: str, claims: Callable[..., Any], draw: Callable[..., Any]) -> Artifact:
    return Artifact(
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
_LAYERS = {"quick": layers.Setting(8, 3, 30), "paper": layers.Setting(16, 3, 200)}

ARTIFACTS: tuple[Artifact, ...] = (
    Artifact(
        "hanin-rolnick/fig2", "Regions of a network with two inputs, layer by layer", f"{SOURCE}, Figure 2",
        _LAYERS, layers.trials, layers.table, layers.claims, layers.draw, about=layers.about,
    ),
    Artifact(
        "hanin-rolnick/fig3", "A sawtooth of exponentially many pieces, and noise", f"{SOURCE}, Figure 3", _SAWTOOTH,
        sawtooth.trials, sawtooth.table, sawtooth.claims, sawtooth.draw, about=sawtooth.about,
    ),
    Artifact(
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
    Artifact(
        "hanin-rolnick/fig7", "Distances to the nearest boundary, all of them", f"{SOURCE}, Figure 7, section 3.2",
        architectures.HISTOGRAM, architectures.trials, histogram.table, histogram.claims, histogram.draw,
        architectures.data, architectures.about,
    ),
)  # fmt: skip
"""In the order of the paper. Figures 5 to 7 share their runs."""
