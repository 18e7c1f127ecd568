"""Raghu Figures 1 and 3: what layers do in the plane: boundaries of regions, and images of a circle (2.1, 2.2).

docs/raghu says what is chosen where the paper prints neither scales nor how it projects.
"""

import math
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.curves import GreatCircle
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, between, check, increasing
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers.hanin_rolnick import planar
from epoch0.papers.price_tanner.growth import closed_curve, images_in, projected
from epoch0.papers.raghu.transitions import wide_limit
from epoch0.papers.sweep import Artifact, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Table, by
from epoch0.seeds import generator


# ---- Figure 1
def boundary_claims(found: Found) -> Claims:
    spec, (result,) = found.sweep.spec, found.one().results
    bends, cells = np.asarray(result["bends"]), np.asarray(result["cells"])
    straight, later, corners = (int(part.sum()) for part in (bends[:, 0], bends[:, 1:], cells[:, -1]))
    kinks, concave = int(np.sum(result["bent"])), int(np.sum(result["concave"]))
    convex, elsewhere = f"{corners} regions, {concave} concave corners", f"{later} bends, {kinks} of them elsewhere"
    text = f"{straight} bends in {spec.networks} networks of {spec.width} lines"
    meet = by(check, kinks == 0, elsewhere, {"bends": float(later), "elsewhere": kinks})
    return {
        "the boundaries of the first layer are straight lines": by(check, straight == 0, text, {"bends": straight}),
        "those of later layers bend only where they meet boundaries of earlier layers": meet,
        "every region is convex": by(check, concave == 0, convex, {"regions": corners, "concave_corners": concave}),
        **planar.further(found),
        **planar.checks(found, "networks"),
    }


def draw_boundaries(found: Found) -> plots.Figure:
    from matplotlib.collections import LineCollection

    spec, (result,) = found.sweep.spec, found.one().results
    picture, panels = plots.figure(3.2 * spec.depth, 4.8, columns=spec.depth, sharey=True, squeeze=False)
    vertices, edges, owner = (np.asarray(result[name]) for name in ("vertices", "edges", "owner"))
    for shown, axes in enumerate(panels[0]):
        for layer in range(shown + 1):
            newest, lines = layer == shown, list(vertices[edges[owner == layer]])
            look = {"linewidths": 1.8, "alpha": 1.0} if newest else {"linewidths": 0.9, "alpha": 0.6}
            axes.add_collection(LineCollection(lines, colors=plots.COLOURS[layer], capstyle="round", **look))
            if shown == spec.depth - 1:
                axes.plot([], [], color=plots.COLOURS[layer], label=f"neurons of layer {layer + 1}")
        axes.set(xlim=(-spec.half, spec.half), ylim=(-spec.half, spec.half), aspect="equal", xlabel="first input")
        axes.set_title(f"layer {shown + 1}: {int(result['cells'][0][shown])} regions")
        axes.grid(False)
        axes.spines[["top", "right"]].set_visible(True)
    panels[0][0].set_ylabel("second input")
    plots.legend_below(picture, *panels[0][-1].get_legend_handles_labels(), columns=3)
    return picture


# ---- Figure 3
CLOSE = 0.05  # growth follows sqrt(chi) of wide networks if it is that near, relatively; width 100 leaves about 1 %
_PLANE = 0  # stream of the plane of a network's circle


def block(spec: Spec, seed: int) -> dict[str, Any]:
    """``lengths``, (networks, depth + 1), of a circle for each network; from the block of network 0 also its
    ``images``, (depth + 1, shown, 2), and the ``shares`` of the variance in them.
    """
    lengths, found = [], dict[str, Any]()
    sizes, law, stop = [spec.width] * (spec.depth + 1), Gaussian(math.sqrt(spec.variance)), spec.first + spec.networks
    every = ensemble(stop, sizes, "tanh", law, linear_output=False, seed=seed, dtype=torch.float64)
    for index in range(spec.first, stop):
        plane = torch.randn(spec.width, 2, generator=generator(seed, _PLANE, index), dtype=torch.float64)
        basis = torch.linalg.qr(plane).Q * math.sqrt(spec.width)
        circle = GreatCircle(basis[:, 0], basis[:, 1])
        lengths.append(trajectory_length(every[index], circle, points=spec.tangents, seed=seed).lengths)
        if index == 0:
            net, points = every[0], circle.point(np.linspace(0.0, 1.0, spec.shown))
            ends = [name for name, part in net.named_children() if next(part.parameters(), None) is None]  # the tanhs
            paths, shares = zip(projected(points.numpy()), *images_in(net, points, ends), strict=True)
            found = {"images": np.stack(paths), "shares": np.array(shares)}
    return {"lengths": np.asarray(lengths, dtype=np.float64), **found}


def _relative(found: Found) -> Array:
    """Lengths relative to the circle's own, shape (networks, depth + 1)."""
    lengths = found.one()["lengths"]
    return np.asarray(lengths / lengths[:, :1])


def table(found: Found) -> Table:
    lengths, spec = _relative(found), found.sweep.spec
    wide, shares = wide_limit("tanh", spec.variance, spec.depth), found.one().results[0]["shares"]
    measured = {"length": lengths[:, 1:], "growth": lengths[:, 1:] / lengths[:, :-1]}
    return found.rows(lambda _: (measured, {"wide": wide, "share": shares[1:]}, {"layer": range(1, spec.depth + 1)}))


def claims(found: Found) -> Claims:
    rows, runs = found.table, found.sweep["runs"]
    length, error = rows.of("length", "length_error")
    names, wide = ["the circle", *rows.labels("layer {layer}")], rows.column("wide")
    near = rows.claim(between, "growth", (1 - CLOSE) * wide, (1 + CLOSE) * wide, names="layer {layer}")
    return {
        "the image of the circle grows longer with depth": by(increasing, [1.0, *length], [0.0, *error], runs, names),
        "... in every layer": rows.claim(at_least, "growth", 1.0, names="layer {layer}"),
        f"growth in every layer is within {100 * CLOSE:g} % of sqrt(chi), the wide limit": near,
    }


def draw(found: Found) -> plots.Figure:
    ratio, (result,) = _relative(found)[0], found.one().results[:1]
    picture, panes = plots.figure(1.75 * len(ratio), 2.4, 1, len(ratio))
    for layer, axes in enumerate(panes):
        share = float(np.asarray(result["shares"])[layer])
        title = f"layer {layer}: × {ratio[layer]:.3g},\n{share:.0%} of variance" if layer else "the circle"
        closed_curve(axes, np.asarray(result["images"])[layer], title)
        axes.set(xticks=[], yticks=[])
    return picture


_SPEC = Spec(variance=16.0, width=100, depth=6, tangents=256, shown=6000)  # width and depth are the paper's in both
_CIRCLES = Sweep(block, _SPEC, runs=1000, seed=3, block=50).presets(runs=50, block=25)
_PLANES = Sweep(planar.partitions, planar.square(4, networks=1000)).presets(networks=50)
_ABOUT = "tanh, width {width}, $\\sigma_w^2$ = {variance:g}, no biases; panes: one network, the first two principal "
_ABOUT += "components of each image, and the mean of {runs} networks: how many times longer than the circle; no bars"
_TITLE, _FIRST = "Boundaries in the plane of two inputs, layer by layer", (boundary_claims, draw_boundaries)
_THIRD = "A circle through the layers of a tanh network"
ARTIFACTS = (
    Artifact("raghu/fig1", _TITLE, "section 2.2", _PLANES, planar.table, *_FIRST, planar.ABOUT),
    Artifact("raghu/fig3", _THIRD, "section 2.2", _CIRCLES, table, claims, draw, _ABOUT),
)
