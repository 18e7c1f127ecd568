"""Arpit-Bengio Figures 2a, 2b drawn: the two distortions that the paper compares, each beside what predicts it."""

from typing import TYPE_CHECKING

from epoch0 import plots
from epoch0.papers.arpit_bengio.distortion import LEMMA, Direction, Setting, expected_distortion, table
from epoch0.papers.catalogue import Results
from epoch0.theory import norms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RATIO: dict[Direction, str] = {
    "forward": r"\|h\|/\|x\|",
    "backward": r"\|\partial W\|_F/(\|\delta\|\,\|x\|)",
}


def draw(direction: Direction, setting: Setting, results: Results) -> "Figure":
    """Distortion against width: the lemma's eps, the best Chernoff bound's, the exact one, and what was measured."""
    rows = table(direction, setting, results)
    picture, axes = plots.figure(6.8, 4.8)
    low, high = setting.widths[0], setting.widths[-1]
    fine = [round(low * (high / low) ** (step / 40)) for step in range(41)]
    inside = f"{100 * (1 - setting.delta):g} %"
    lines = {
        "paper": (rf"{LEMMA[direction]} for $|1-r^2|$, as the paper draws it", plots.BOUND, "--"),
        "chernoff": ("best Chernoff bound for $|1-r^2|$", plots.BOUND, "-."),
        "exact": (rf"exact: {inside} of $|1-r^2|$ are below", plots.COLOURS[0], "-"),
    }
    for method, (label, colour, dashes) in lines.items():
        eps = [norms.tolerance(width, setting.delta, method=method) for width in fine]
        plots.curve(axes, fine, eps, 0, label, color=colour, linestyle=dashes, linewidth=1.2)
    for index, name, label in (
        (0, "quantile", rf"measured: {inside} of $|1-r^2|$ are below"),
        (1, "mean", "measured: mean of $|1-r|$, as the paper draws it"),
    ):
        plots.points(
            axes, [row["width"] for row in rows], [row[name] for row in rows], [row[f"{name}_error"] for row in rows],
            index, label,
        )  # fmt: skip
    plots.curve(axes, fine, [expected_distortion(width) for width in fine], 1, "exact: mean of $|1-r|$", linewidth=1.2)
    axes.set(xlabel="width of the hidden layer", ylabel=rf"distortion $\epsilon$, with $r={_RATIO[direction]}$")
    axes.set_ylim(0, 1.05 * max(row["paper_eps"] for row in rows))
    axes.legend(loc="upper right")
    return picture
