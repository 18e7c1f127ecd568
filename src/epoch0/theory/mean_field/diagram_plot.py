"""The picture of a phase diagram: colour for the gain, a line for the edge of chaos (after Poole et al. 2016)."""

from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from epoch0.theory.mean_field.phases import PhaseDiagram


def draw(diagram: "PhaseDiagram") -> "Figure":
    """The phase diagram as a matplotlib figure.

    Args:
        diagram: of at least 2 x 2 points.

    Returns:
        A figure of its own; save it with ``figure.savefig(path)``.
    """
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.patches import Patch

    picture, axes = plots.figure()
    with plots.style():
        diverges = np.isinf(diagram.q)
        shown = np.log10(np.clip(diagram.chi, 1e-3, 1e3))
        # where q diverges chi is a limit, not a gain that a layer has: no colour there
        shown = np.where(diverges, np.nan, shown)
        inside = shown[np.isfinite(shown)]
        reach = max(0.1, float(np.abs(inside).max())) if len(inside) else 1.0
        reach = min(reach, 1.0)
        norm = TwoSlopeNorm(0.0, -reach, reach)
        x, y = diagram.weight_std, diagram.bias_std
        image = axes.pcolormesh(
            x, y, np.clip(shown, -reach, reach), cmap="RdBu_r", norm=norm, shading="nearest", rasterized=True
        )
        bar = picture.colorbar(image, ax=axes, label=r"gain $\chi$ at the fixed point (log scale)")
        ticks = [t for t in (0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0) if abs(np.log10(t)) <= reach * 1.001]
        bar.set_ticks([float(np.log10(t)) for t in ticks], labels=[f"{t:g}" for t in ticks])
        handles = []
        if diverges.any():
            axes.contourf(x, y, diverges.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"])
            axes.contour(x, y, diverges.astype(float), levels=[0.5], colors=plots.BOUND, linewidths=0.8)
            handles.append(Patch(facecolor="white", edgecolor=plots.BOUND, hatch="////", label="q diverges"))
        edge = diagram.edge
        single = len(edge.weight_std) == 1
        style = {"marker": "o", "linestyle": "none", "markersize": 7, "clip_on": False} if single else {"linewidth": 2}
        if np.isfinite(edge.weight_std).any():
            handles += axes.plot(
                edge.weight_std, edge.bias_std, color="black", label=r"edge of chaos, $\chi=1$", zorder=5, **style
            )
        axes.set_xlim(x[0], x[-1])
        axes.set_ylim(y[0], y[-1])
        axes.grid(False)
        axes.set_xlabel(r"weight_std  $\sigma_w$")
        axes.set_ylabel(r"bias_std  $\sigma_b$")
        for word, colour in (("ordered", "#053061"), ("chaotic", "#67001f")):
            rows, columns = np.nonzero(diagram.phase == word)
            share = len(rows) / diagram.phase.size
            if share > 0.02:
                at = (float(np.median(x[columns])), float(np.median(y[rows])))
                turned = 90 if share < 0.15 else 0
                axes.text(*at, word, ha="center", va="center", color=colour, fontsize=11, rotation=turned)
        if handles:
            axes.legend(handles=handles, loc="upper left")
        density = "" if diagram.density == 1 else f", density {diagram.density:g}"
        title = f"Phase diagram of {diagram.activation}{density}"
        plots.heading(picture, title, "wide dense network, at the fixed point of the variance")
    return picture
