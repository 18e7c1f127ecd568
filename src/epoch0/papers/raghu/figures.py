"""Raghu's figures, as artifacts in the order of the paper."""

from dataclasses import replace
from typing import Any

from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.curve import CurveSpec
from epoch0.papers.raghu import (
    boundaries,
    circle,
    conv_lengths,
    dichotomies,
    regularization,
    single_layer,
    trained_lengths,
    trained_norms,
    trained_robust,
    transitions,
    transitions_claims,
    transitions_pictures,
)
from epoch0.papers.raghu.transitions import Setting

_DIGITS = CurveSpec("digits", size=64, first=100, second=300)
_MNIST = CurveSpec("mnist", size=784, first=100, second=1000)
_RANDOM = CurveSpec("random", size=100)

_COUNTED = {
    "quick": Setting("hardtanh", (2.0, 4.0, 8.0), (16, 32, 64), 8, 40, 10, _DIGITS, True),
    "paper": Setting("hardtanh", (1.0, 2.0, 4.0, 8.0), (16, 32, 64, 128), 10, 20, 2, _MNIST, True),
}
_RELU = {
    "quick": Setting("relu", (1.0, 2.0, 4.0), (16, 64), 8, 200, 100, _DIGITS, False),
    "paper": Setting("relu", (1.0, 2.0, 4.0, 8.0), (16, 64, 256), 10, 200, 25, _MNIST, False),
}
_QUICK = Setting("hardtanh", (1.0, 2.0, 4.0, 8.0, 16.0), (4, 16, 64, 128), 10, 20, 20, _RANDOM, False)
_PAPER = Setting(
    "hardtanh", (1.0, 2.0, 4.0, 8.0, 16.0, 32.0), (4, 8, 16, 32, 64, 128, 256, 512), 10, 50, 50, _RANDOM, False
)
_GRID = {"quick": _QUICK, "paper": _PAPER}
_BY_WIDTH = {name: replace(setting, variances=(4.0,)) for name, setting in _GRID.items()}
_BY_VARIANCE = {name: replace(setting, widths=(setting.widths[-1],)) for name, setting in _GRID.items()}


def _artifact(name: str, title: str, where: str, presets: dict[str, Setting], claims: Any, draw: Any) -> OldArtifact:
    table = transitions.growth_table if name in ("fig13c", "fig13d") else transitions.table
    return OldArtifact(f"raghu/{name}", title, f"Raghu et al., {where}", presets, transitions.trials, table, claims,
                    draw, about=transitions.about_length if name == "fig5" else transitions.about)  # fmt: skip


ARTIFACTS: tuple[OldArtifact, ...] = (
    *boundaries.ARTIFACTS,
    _artifact(
        "fig2", "Transitions against depth and against width", "Figure 2, section 2.1.1", _COUNTED,
        transitions_claims.depth_claims, transitions_pictures.depth_and_width,
    ),
    *circle.ARTIFACTS,
    *conv_lengths.ARTIFACTS,
    _artifact(
        "fig5", "Transitions against trajectory length", "Figure 5, Theorem 4", _COUNTED,
        transitions_claims.length_claims, transitions_pictures.against_length,
    ),
    *trained_robust.ARTIFACTS,
    single_layer.FIGURE_7,
    trained_lengths.FIGURE_8,
    trained_lengths.FIGURE_9,
    *trained_norms.ARTIFACTS,
    *regularization.ARTIFACTS,
    _artifact(
        "fig12", "Length at each layer of ReLU networks", "Figure 12, section 2.2", _RELU,
        transitions_claims.relu_claims, transitions_pictures.lengths,
    ),
    _artifact(
        "fig13a", "Length at each layer, hard tanh, by width", "Figure 13a", _BY_WIDTH,
        transitions_claims.hard_tanh_length_claims, transitions_pictures.lengths,
    ),
    _artifact(
        "fig13b", "Length at each layer, hard tanh, by variance", "Figure 13b", _BY_VARIANCE,
        transitions_claims.hard_tanh_length_claims, transitions_pictures.lengths,
    ),
    _artifact(
        "fig13c", "Growth of length in a layer against width, with bounds", "Figure 13c, Theorem 3", _GRID,
        transitions_claims.bound_claims, transitions_pictures.growth_over_width,
    ),
    _artifact(
        "fig13d", "Growth of length in a layer against variance, with bounds", "Figure 13d, Theorem 3", _GRID,
        transitions_claims.bound_claims, transitions_pictures.growth_over_variance,
    ),
    *dichotomies.ARTIFACTS,
    single_layer.FIGURE_17,
    trained_lengths.FIGURE_18,
)  # fmt: skip
