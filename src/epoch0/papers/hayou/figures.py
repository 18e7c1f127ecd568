"""Hayou's figures and tables as artifacts, in the order of the paper."""

import math

from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.hayou import (
    accuracy_presets,
    chains,
    kept,
    ordered,
    ordered_picture,
    residual,
    residual_pictures,
    tickets,
    trainable,
    unequal,
    vanilla,
    vgg,
)

_TH1 = {
    "quick": ordered.Setting((math.exp(-1.6), math.exp(-0.4), 0.8, 0.95), (math.exp(-1.6), 0.8), networks=6),
    "paper": ordered.Setting(
        (0.1, math.exp(-1.6), 0.5, math.exp(-0.4), 0.7, 0.8, 0.85, 0.9, 0.95, 0.99),
        (math.exp(-1.6), 0.5, 0.8, 0.95), networks=10,
    ),
}  # fmt: skip

ARTIFACTS: tuple[OldArtifact, ...] = (
    accuracy_presets.TABLE_1,
    *kept.ARTIFACTS,
    OldArtifact(
        "hayou/th1", "Critical sparsity of SNIP in the ordered phase", "Hayou et al., Theorem 1, section 2.2", _TH1,
        ordered.trials, ordered.table, ordered.claims, ordered_picture.draw, about=ordered.about,
    ),
    OldArtifact(
        "hayou/fig2", "Weights that SNIP keeps of each layer, ResNet and Stable ResNet", "Hayou et al., Figure 2",
        residual.BOTH_MODES, residual.trials, residual.table, residual.claims, residual_pictures.draw_modes,
        lambda setting: setting.spec.data, residual.about,
    ),
    *trainable.FIGURE_3,
    chains.ARTIFACT,
    accuracy_presets.TABLE_2,
    accuracy_presets.TABLE_3,
    vanilla.ARTIFACT,
    vgg.ARTIFACT,
    accuracy_presets.TABLE_6,
    unequal.ARTIFACT,
    accuracy_presets.TABLE_8,
    accuracy_presets.TABLE_9,
    OldArtifact(
        "hayou/fig4", "Weights that SNIP keeps of each layer, ReLU and tanh", "Hayou et al., Figure 4, appendix G",
        residual.BOTH_ACTIVATIONS, residual.trials, residual.table, residual.claims,
        residual_pictures.draw_activations, lambda setting: setting.spec.data, residual.about,
    ),
    *trainable.FIGURE_5,
    accuracy_presets.TABLE_10,
    tickets.ARTIFACT,
)  # fmt: skip
"""In the order of the paper."""
