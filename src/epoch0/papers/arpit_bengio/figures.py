"""Arpit-Bengio Figures 1a, 1b, 2a, 2b, 3 as artifacts: their presets, and which claims and picture belong to each."""

from collections.abc import Callable
from functools import partial
from typing import Any

from epoch0.papers.arpit_bengio import (
    depth,
    depth_claims,
    depth_pictures,
    uneven,
    uneven_picture,
)
from epoch0.papers.arpit_bengio.laws import Quantity
from epoch0.papers.catalogue import OldArtifact

_DEPTH = {
    "quick": depth.Setting(widths=(100, 300, 1000), depth=10, inputs=200, networks=(240, 120, 40)),
    "paper": depth.Setting(widths=(100, 500, 2000, 4000), depth=10, inputs=2000, networks=(240, 120, 30, 10)),
}
_UNEVEN = {
    "quick": uneven.Setting(width=400, variations=(1, 80, 200), depth=20, inputs=100, networks=100),
    "paper": uneven.Setting(width=1000, variations=(1, 200, 500), depth=20, inputs=1000, networks=40),
}


def _depth(letter: str, title: str, quantity: Quantity, claims: Callable[..., Any]) -> OldArtifact:
    return OldArtifact(
        f"arpit-bengio/fig1{letter}", title, f"Arpit & Bengio, Figure 1{letter}, section 4.1", _DEPTH,
        trials=depth.trials, table=partial(depth.table, quantity), claims=claims,
        draw=partial(depth_pictures.draw, quantity), about=depth.about,
    )  # fmt: skip


ARTIFACTS: tuple[OldArtifact, ...] = (
    _depth("a", "Norm of the activations at each layer, He and Glorot", "activation", depth_claims.activation_claims),
    _depth("b", "Norm of the gradients at each layer, He and Glorot", "gradient", depth_claims.gradient_claims),
    OldArtifact(
        "arpit-bengio/fig3", "Norm of the gradients at each layer when the widths vary",
        "Arpit & Bengio, Figure 3, section 4.3", _UNEVEN,
        trials=uneven.trials, table=uneven.table, claims=uneven.claims, draw=uneven_picture.draw, about=uneven.about,
    ),
)  # fmt: skip
"""In the order of the paper. Figures 1a and 1b, and 2a and 2b, share their trials."""
