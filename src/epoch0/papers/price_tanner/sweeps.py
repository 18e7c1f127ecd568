"""Price-Tanner Figures 2, 3a, 3b, 5a-d as artifacts: their presets, and which claims and picture belong to each."""

from dataclasses import replace
from typing import Any

from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.curve import CurveSpec
from epoch0.papers.price_tanner import growth, growth_claims, growth_pictures
from epoch0.papers.price_tanner.growth import DENSITIES, LAWS, STDS, Setting

_DIGITS = CurveSpec("digits", size=64, first=100, second=300)
_MNIST = CurveSpec("mnist", size=784, first=100, second=1000)
"""The 101st and the 1001st image of MNIST's test set, as in the paper; two embedded digits in quick."""

_DEPTH = 10
_DENSITY, _STD, _STEEP_STD = 0.5, 2.0, 6.0
"""What the paper keeps fixed in Figures 3a, 3b and 2."""


def _over_density(curves: dict[str, CurveSpec], networks: int, block: int) -> Setting:
    width = next(iter(curves.values())).size
    return Setting(LAWS, (_STD,), DENSITIES, width, _DEPTH, networks, block, tuple(curves.items()))


def _over_std(setting: Setting) -> Setting:
    return replace(setting, stds=STDS, densities=(_DENSITY,))


def _over_depth(setting: Setting) -> Setting:
    return replace(setting, laws=("gaussian",), stds=(_STEEP_STD,), densities=DENSITIES[:9])


_IMAGES = {
    "quick": _over_density({"line between two digits": _DIGITS}, 400, 100),
    "paper": _over_density({"line between two MNIST images": _MNIST}, 100, 10),
}


def _random(size: int, planes: int) -> dict[str, CurveSpec]:
    arcs = CurveSpec("random", "arcs", size=size, planes=planes)
    return {"straight": CurveSpec("random", size=size), "curved": arcs}


_RANDOM = {"quick": _over_density(_random(64, 100), 200, 100), "paper": _over_density(_random(500, 100), 100, 10)}


def _straight(setting: Setting) -> Setting:
    return replace(setting, shown="straight")


def _curved(setting: Setting) -> Setting:
    return replace(setting, shown="curved")


def _artifact(name: str, title: str, source: str, presets: dict[str, Setting], **parts: Any) -> OldArtifact:
    what: dict[str, Any] = {"trials": growth.trials, "table": growth.table, "about": growth.about, **parts}
    return OldArtifact(f"price-tanner/{name}", title, f"Price & Tanner, {source}", presets, **what)


_BY_STD: dict[str, Any] = {"claims": growth_claims.std_claims, "draw": growth_pictures.over_std}
_BY_DENSITY: dict[str, Any] = {"claims": growth_claims.density_claims, "draw": growth_pictures.over_density}


def _random_artifact(letter: str, shape: str, by_std: bool) -> OldArtifact:
    against = "std of the weights" if by_std else "density"
    chosen = _straight if shape == "straight" else _curved
    presets = {name: chosen(_over_std(setting) if by_std else setting) for name, setting in _RANDOM.items()}
    title = f"Growth factor against {against}, random points, {shape} trajectory"
    return _artifact(f"fig5{letter}", title, f"Figure 5{letter}", presets, **(_BY_STD if by_std else _BY_DENSITY))


ARTIFACTS: tuple[OldArtifact, ...] = (
    _artifact(
        "fig2",
        "Mean length of a trajectory at each layer, by density",
        "Figure 2",
        {name: _over_depth(setting) for name, setting in _IMAGES.items()},
        table=growth.length_table,
        claims=growth_claims.depth_claims,
        draw=growth_pictures.over_depth,
    ),
    _artifact(
        "fig3a",
        "Growth factor against std of the weights, three laws",
        "Figure 3a",
        {name: _over_std(setting) for name, setting in _IMAGES.items()},
        **_BY_STD,
    ),
    _artifact("fig3b", "Growth factor against density, three laws", "Figure 3b", _IMAGES, **_BY_DENSITY),
    _random_artifact("a", "straight", by_std=True),
    _random_artifact("b", "straight", by_std=False),
    _random_artifact("c", "curved", by_std=True),
    _random_artifact("d", "curved", by_std=False),
)
"""In the order of the paper. Figures 5a and 5c, and 5b and 5d, measure both trajectories, and share their trials."""
