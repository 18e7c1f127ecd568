"""Raghu Figures 14a, 14b, 15, 16 (appendix B.3): dichotomies of s inputs while one layer's weights turn."""

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.activity import random_walk
from epoch0.experiments.claims import Claim, equal_within_error, exact, increasing, linear
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.dichotomies_trial import SweepSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.raghu.dichotomies_trial:swept"


@dataclass(frozen=True)
class Setting:
    """One preset of a figure.

    Attributes:
        variance: sigma_w^2.
        cases: width, number of hidden layers and swept layer of every point.
        networks: of each.
        block: networks a trial.
        size: coordinates of an input.
        inputs: s.
        over: what runs along the axis: "depth" or "width".
    """

    variance: float
    cases: tuple[tuple[int, int, int], ...]
    networks: int
    block: int
    size: int = 100
    inputs: int = 15
    over: str = "depth"


def trials(setting: Setting) -> list[Trial]:
    """Blocks of networks; every block has a seed, so inputs, of its own."""
    made = []
    for width, depth, layer in setting.cases:
        for first in range(0, setting.networks, setting.block):
            told = f"{setting.variance!r} {width} {depth} {layer} {first}"
            seed = int.from_bytes(hashlib.sha256(told.encode()).digest()[:7], "big")
            count = min(setting.block, setting.networks - first)
            spec = SweepSpec(setting.variance, width, depth, layer, setting.size, setting.inputs, count)
            made.append(Trial(TRIAL, spec, seed))
    return made


def gather(setting: Setting, results: Results) -> list[tuple[tuple[int, int, int], Array, Array]]:
    """Every case with its distinct labellings and its flips, shape (networks,) each."""
    per_case = math.ceil(setting.networks / setting.block)
    found = []
    for place, case in enumerate(setting.cases):
        blocks = results[place * per_case : (place + 1) * per_case]
        counts, flips = (np.concatenate([np.asarray(b[name]) for b in blocks]) for name in ("counts", "flips"))
        found.append((case, counts.astype(np.float64), flips.astype(np.float64)))
    return found


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a case: labellings, flips, their standard errors, and what a random walk of as many flips sees."""
    rows = []
    for (width, depth, layer), counts, flips in gather(setting, results):
        mean, error = mean_and_error(counts)
        flipped, flipped_error = mean_and_error(flips)
        walk, walk_error = random_walk(setting.inputs, flips.astype(int).tolist(), walks=20, seed=width + depth)
        rows.append({
            "width": width, "depth": depth, "layer": layer, "remaining": depth - layer, "networks": len(counts),
            "dichotomies": mean, "dichotomies_error": error, "flips": flipped, "flips_error": flipped_error,
            "most": float(counts.max()), "walk": float(walk.mean()), "walk_error": float(walk_error.mean()),
        })  # fmt: skip
    return rows


def _bounded(setting: Setting, results: Results) -> Claim:
    """No count above 2^s, nor above the stretches between flips."""
    found = gather(setting, results)
    most = max(float(counts.max()) for _, counts, _ in found)
    above = sum(int((counts > np.minimum(2**setting.inputs, np.maximum(1, flips))).sum()) for _, counts, flips in found)
    return exact(
        f"there are at most 2^{setting.inputs} dichotomies, and no more than flips", above == 0,
        f"{above} networks above; the most seen are {most:.0f} of {2**setting.inputs}", {"above": above, "most": most},
    )  # fmt: skip


def claims_by_depth(setting: Setting, results: Results) -> list[Claim]:
    """Figure 14a: exponential in depth."""
    rows = table(setting, results)
    claims = []
    for width in sorted({row["width"] for row in rows}):
        some = [row for row in rows if row["width"] == width]
        relative = [row["dichotomies_error"] / row["dichotomies"] for row in some]
        logs, depth = np.log([row["dichotomies"] for row in some]), [row["depth"] for row in some]
        claims.append(linear(f"dichotomies are exponential in depth (width {width})", depth, logs, relative,
                             setting.networks, least_r2=0.97))  # fmt: skip
    return [*claims, _bounded(setting, results)]


def claims_by_width(setting: Setting, results: Results) -> list[Claim]:
    """Figure 14b: increasing in width, and more slowly than in depth."""
    rows = table(setting, results)
    deepest = max(row["depth"] for row in rows)
    some = [row for row in rows if row["depth"] == deepest]
    names = [f"width {row['width']}" for row in some]
    mean, error = ([row[name] for row in some] for name in ("dichotomies", "dichotomies_error"))
    found = {(row["width"], row["depth"]): row for row in rows}
    widest, shallow = max(row["width"] for row in rows), min(row["depth"] for row in rows)
    top, narrow, low = found[widest, deepest], found[some[0]["width"], deepest], found[widest, shallow]

    def doubling(other: dict[str, Any], ratio: float) -> tuple[float, float]:
        log = math.log(top["dichotomies"] / other["dichotomies"]) / math.log2(ratio)
        errors = [row["dichotomies_error"] / row["dichotomies"] for row in (top, other)]
        return log, math.hypot(*errors) / math.log2(ratio)

    by_width = doubling(narrow, widest / narrow["width"])
    by_depth = doubling(low, deepest / shallow)
    return [
        increasing(f"dichotomies increase with the width (depth {deepest})", mean, error, setting.networks, names),
        increasing(
            "they grow much more slowly in width than in depth", [by_width[0], by_depth[0]],
            [by_width[1], by_depth[1]], setting.networks, ["log ratio a doubling of width", "a doubling of depth"],
        ),
        _bounded(setting, results),
    ]  # fmt: skip


def claims_by_remaining(setting: Setting, results: Results) -> list[Claim]:
    """Figure 15: depends on the remaining depth alone."""
    rows = table(setting, results)
    claims = []
    for remaining in sorted({row["remaining"] for row in rows}):
        some = [row for row in rows if row["remaining"] == remaining]
        if len(some) < 2:
            continue
        claims.append(equal_within_error(
            f"dichotomies do not depend on the layers below ({remaining} hidden layers from the swept one on)",
            np.array([[row["dichotomies"] for row in some]]), np.array([[row["dichotomies_error"] for row in some]]),
            setting.networks, resolution=0.15, settings=[f"{remaining} layers"],
            groups=tuple(f"depth {row['depth']}" for row in some),
        ))  # fmt: skip
    return [*claims, _bounded(setting, results)]


def claims_of_walk(setting: Setting, results: Results) -> list[Claim]:
    """Figure 16: as many as a random walk with the same number of flips."""
    rows = table(setting, results)
    pairs = np.array([[row["dichotomies"], row["walk"]] for row in rows])
    claims = [
        equal_within_error(
            f"labellings seen are those of a random walk with as many flips (depth {row['depth']})", pairs[i][None],
            np.array([[row["dichotomies_error"], row["walk_error"]]]), setting.networks, resolution=0.15,
            settings=[f"depth {row['depth']}"], groups=("measured", "random walk"),
        )
        for i, row in enumerate(rows)
    ]  # fmt: skip
    return [*claims, _bounded(setting, results)]


def _axes(setting: Setting, axes: "Axes", axis: str) -> None:
    axes.axhline(2**setting.inputs, linestyle="--", color=plots.COLOURS[0], linewidth=1.0)
    axes.annotate(f"all $2^{{{setting.inputs}}}$", (0.01, 2**setting.inputs), xycoords=("axes fraction", "data"),
                  xytext=(2, -10), textcoords="offset points", fontsize=8, color=plots.COLOURS[0])  # fmt: skip
    axes.set(yscale="log", xlabel=axis, ylabel=f"dichotomies of {setting.inputs} inputs")
    axes.set_ylim(top=2.0 ** (setting.inputs + 0.7))


def draw(setting: Setting, results: Results) -> "Figure":
    """Figures 14 and 15: dichotomies against depth, width or remaining depth."""
    rows = table(setting, results)
    picture, axes = plots.figure(6.4, 4.8)
    by, along, label, axis = {
        "depth": ("width", "depth", "width {}", "depth: hidden layers $n$"),
        "width": ("depth", "width", "{} hidden layers", "width $k$"),
        "remaining": ("depth", "remaining", "{} hidden layers in all", "hidden layers from the swept one on"),
    }[setting.over]
    for index, value in enumerate(sorted({row[by] for row in rows})):
        some = sorted((row for row in rows if row[by] == value), key=lambda row: row[along])
        plots.points(
            axes, [row[along] for row in some], [row["dichotomies"] for row in some],
            [row["dichotomies_error"] for row in some], index, label.format(value), linestyle="-", linewidth=1.0,
        )  # fmt: skip
    _axes(setting, axes, axis)
    if setting.over == "width":
        axes.set_xscale("log", base=2)
    ticks = sorted({row[along] for row in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(loc="best")
    return picture


def draw_walk(setting: Setting, results: Results) -> "Figure":
    """Figure 16: dichotomies against flips, every network a point, and the random walk."""
    picture, axes = plots.figure(6.4, 4.8)
    found = gather(setting, results)
    for index, ((_, depth, _), counts, flips) in enumerate(found):
        axes.plot(flips, counts, linestyle="none", marker=plots.MARKERS[index % 8], markersize=4,
                  color=plots.COLOURS[index % 8], alpha=0.8, label=f"{depth} hidden layers")  # fmt: skip
    most = max(float(flips.max()) for _, _, flips in found)
    least = min(float(flips.min()) for _, _, flips in found)
    at = np.unique(np.geomspace(max(1.0, least), most, 40).astype(int))
    walk, _ = random_walk(setting.inputs, at.tolist(), walks=50)
    axes.plot(at, walk, "-", color="#000000", linewidth=1.0, label="random walk: one label flips at random")
    _axes(setting, axes, "transitions: flips of a label, once round")
    axes.set_xscale("log")
    ticks = [mark for decade in range(7) for mark in (10**decade, 2 * 10**decade, 5 * 10**decade)]
    ticks = [mark for mark in ticks if least / 2 <= mark <= most * 2]
    axes.set_xticks(ticks, [f"{mark:,}" for mark in ticks])
    axes.minorticks_off()
    axes.set_xlim(least / 1.3, most * 1.3)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88))
    return picture


def about(setting: Setting, bars: str = "bars: two standard errors") -> str:
    """The setting in one line."""
    return (
        f"hard tanh, sigma_w^2 = {setting.variance:g}, no biases, one output; one layer's weights on a great circle, "
        f"{setting.inputs} random inputs in R^{setting.size}; {setting.networks} networks a point; {bars}"
    )


def _by_depth(widths: tuple[int, ...], depths: tuple[int, ...], networks: int, block: int, over: str) -> Setting:
    return Setting(8.0, tuple((w, d, 0) for w in widths for d in depths), networks, block, over=over)


def _by_remaining(width: int, depths: tuple[int, ...], networks: int, block: int) -> Setting:
    cases = tuple((width, d, layer) for d in depths for layer in range(1, d))
    return Setting(8.0, cases, networks, block, over="remaining")


def _about_walk(setting: Setting) -> str:
    """Figure 16 shows every network."""
    return about(setting, "every point a network, no bars").replace("networks a point", "networks a depth")


def _artifact(name: str, title: str, quick: Setting, paper: Setting, claims: Any, picture: Any = draw) -> OldArtifact:
    source = f"Raghu et al., Figure {name.removeprefix('fig')}, appendix B.3"
    presets = {"quick": quick, "paper": paper}
    return OldArtifact(f"raghu/{name}", title, source, presets, trials, table, claims, picture,
                    about=_about_walk if picture is draw_walk else about)  # fmt: skip


ARTIFACTS: tuple[OldArtifact, ...] = (
    _artifact(
        "fig14a", "Dichotomies against depth", _by_depth((16, 64), (1, 2, 3, 4, 5, 6), 20, 20, "depth"),
        _by_depth((32, 64, 128, 256), (1, 2, 3, 4, 5, 6, 7, 8), 20, 10, "depth"), claims_by_depth,
    ),
    _artifact(
        "fig14b", "Dichotomies against width", _by_depth((8, 16, 32, 64), (1, 2, 4), 30, 30, "width"),
        _by_depth((16, 32, 64, 128, 256, 512), (1, 2, 4, 6), 20, 10, "width"), claims_by_width,
    ),
    _artifact(
        "fig15", "Dichotomies against the remaining depth", _by_remaining(32, (3, 5), 60, 30),
        _by_remaining(128, (5, 7, 9), 20, 10), claims_by_remaining,
    ),
    _artifact(
        "fig16", "Dichotomies against transitions, and a random walk",
        Setting(16.0, tuple((32, d, 0) for d in range(1, 6)), 40, 20),
        Setting(16.0, tuple((128, d, 0) for d in range(1, 9)), 20, 10), claims_of_walk, draw_walk,
    ),
)  # fmt: skip
