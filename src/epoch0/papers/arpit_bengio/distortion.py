"""Arpit-Bengio Figures 2a, 2b (section 4.2): distortion of one layer against its width, and what is predicted for it.

The paper compares two things that differ: the mean over inputs of ``|1 - ||h|| / ||x|| |``, and the eps that its lemma
allows the *squared* norm with failure probability delta. Both are measured here, each beside its own exact value.
"""

import functools
from functools import partial
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_most, exact, increasing
from epoch0.papers import pictures
from epoch0.papers.arpit_bengio.norms import NormsSpec, shallow
from epoch0.papers.catalogue import Artifact
from epoch0.papers.means import Mean, mean_and_error
from epoch0.papers.sweep import Cell, Claims, Decision, Found, Sweep, Table, agrees, by
from epoch0.theory import norms

DELTA = 0.05  # failure probability at which the bounds are turned into a distortion
METHODS = {"paper": "the paper's bound", "chernoff": "the best Chernoff bound", "exact": "exact"}
LEMMA = {"forward": "Lemma 2", "backward": "Lemma 5"}
RATIO = {"forward": r"\|h\|/\|x\|", "backward": r"\|\partial W\|_F/(\|\delta\|\,\|x\|)"}
# relative differences below which numbers agree: a mean, and the small share of inputs beyond a tolerance
RESOLUTION, COARSE = 0.05, 0.1


def table(direction: str, found: Found) -> Table:
    """One row a width: both distortions measured, the tolerances predicted, and the shares of inputs beyond them."""
    return found.rows(partial(measured, direction), predicted)


def measured(direction: str, cell: Cell) -> dict[str, Any]:
    """Of the ratios (networks, inputs) of one width."""
    off, squares = np.abs(1 - cell[direction]), np.abs(1 - cell[direction] ** 2)
    # of all inputs together, since a quantile of few is biased; its error is that of networks apart
    spread = mean_and_error(np.quantile(squares, 1 - DELTA, axis=1)).error
    (width,) = cell.spec.widths
    beyond = {f"{name}_beyond": (squares > tolerance(width, name)).mean(1) for name in METHODS}
    return {"mean": off.mean(1), "quantile": Mean(float(np.quantile(squares, 1 - DELTA)), spread), **beyond}


def predicted(cell: Cell) -> dict[str, Any]:
    """The exact mean, the tolerances, and how wide the lemma would have the layer be for the exact tolerance."""
    (width,) = cell.spec.widths
    needed = norms.required_width(tolerance(width, "exact"), DELTA, method="paper")
    eps = {f"{name}_eps": tolerance(width, name) for name in METHODS}
    return {"exact_mean": expected_distortion(width), **eps, "paper_width": needed}


def tolerance(width: int, method: str) -> float:
    """The distortion of the squared norm that is exceeded with probability delta, or a bound on it."""
    return norms.tolerance(width, DELTA, method=method)


@functools.lru_cache(maxsize=256)
def expected_distortion(width: int) -> float:
    """Mean of ``|1 - ||v|| / ||u|| |`` for one layer, exactly (He weights)."""
    return norms.NormRatio((width,)).mean_distortion


def claims(direction: str, found: Found) -> Claims:
    """Section 4.2: the lemma holds, asks for too much, and less so for small eps; and what is exact."""
    rows, lemma = found.table, LEMMA[direction]
    mean, error, eps, count = rows.of("mean", "mean_error", "paper_eps", "runs")
    off = "the squared norm is off by more than the"
    of, tighter = partial(rows.claim, names="width {width}"), f"{lemma} is tighter at smaller eps"
    decided = {f"the mean distortion is at most the eps of {lemma}": of(at_most, "mean", "paper_eps")}
    for name in ("paper", "chernoff"):
        text = f"{off} eps of {METHODS[name]} for at most {DELTA:g} of the inputs"
        decided[text] = of(at_most, f"{name}_beyond", DELTA)
    beyond = of(agrees, "exact_beyond", DELTA, resolution=COARSE)
    same = of(agrees, "mean", "exact_mean", resolution=RESOLUTION)
    asks = f"{lemma} over-estimates the width, less so at small eps, and the best Chernoff bound lies between"
    return {
        **decided,
        f"{off} exact law's eps for {DELTA:g} of the inputs": beyond,
        "the mean distortion is the exact law's": same,
        f"{tighter}: measured over predicted grows with the width": by(
            increasing, mean / eps, error / eps, count, rows.told("width {width}")
        ),
        asks: _overestimates(rows),
    }


def _overestimates(rows: Table) -> Decision:
    """The width that the lemma asks for against the one that is enough: two computed numbers."""
    factors = [row["paper_width"] / row["width"] for row in rows]
    ordered = all(row["exact_eps"] < row["chernoff_eps"] < row["paper_eps"] for row in rows)
    holds = ordered and min(factors) > 1 and factors == sorted(factors, reverse=True)
    asked = f"it asks for {factors[0]:.2f} to {factors[-1]:.2f} times the width that is enough"
    told = f"{asked} ({', '.join(rows.told('{width}: {paper_width:,}'))})"
    return by(exact, holds, told, {"largest_factor": factors[0], "smallest_factor": factors[-1]})


def draw(direction: str, found: Found) -> pictures.Figure:
    """Distortion against width: the lemma's eps, the best Chernoff bound's, the exact one, and what was measured."""
    rows = found.table
    picture, axes = plots.figure(6.8, 4.8)
    low, high = rows[0]["width"], rows[-1]["width"]
    fine = [round(low * (high / low) ** (step / 40)) for step in range(41)]
    inside = f"{100 * (1 - DELTA):g} %"
    for method, label, colour, dashes in (
        ("paper", rf"{LEMMA[direction]} for $|1-r^2|$, as the paper draws it", plots.BOUND, "--"),
        ("chernoff", "best Chernoff bound for $|1-r^2|$", plots.BOUND, "-."),
        ("exact", rf"exact: {inside} of $|1-r^2|$ are below", plots.COLOURS[0], "-"),
    ):
        eps = [tolerance(width, method) for width in fine]
        plots.curve(axes, fine, eps, 0, label, color=colour, linestyle=dashes, linewidth=1.2)
    pictures.points(axes, rows, "width", "quantile", 0, rf"measured: {inside} of $|1-r^2|$ are below")
    pictures.points(axes, rows, "width", "mean", 1, "measured: mean of $|1-r|$, as the paper draws it")
    plots.curve(axes, fine, [expected_distortion(width) for width in fine], 1, "exact: mean of $|1-r|$", linewidth=1.2)
    axes.set(xlabel="width of the hidden layer", ylabel=rf"distortion $\epsilon$, with $r={RATIO[direction]}$")
    axes.set_ylim(0, 1.05 * max(row["paper_eps"] for row in rows))
    axes.legend(loc="upper right")
    return picture


def _widths(*widths: int) -> dict[int, Any]:
    return {width: {"widths": (width,)} for width in widths}


_SPEC, _SEED = NormsSpec((500,), "he", inputs=2000), lambda spec, network: spec.widths[0]
_PAPER = Sweep(shallow, _SPEC, {"width": _widths(*range(500, 4001, 500))}, runs=100, seed=_SEED, block=10)
_QUICK = _PAPER.but(width=_widths(500, 1000, 2000, 4000), inputs=200, runs=200)

_PRESETS = {"quick": _QUICK, "paper": _PAPER}
_ABOUT = "{runs} networks a width, {inputs} inputs in R^500 each, delta = 0.05; bars: two standard errors over networks"


def _artifact(letter: str, direction: str) -> Artifact:
    """Both figures are made of the same trials."""
    title = f"Distortion of the norm by one layer against its width, {direction}"
    rows, decide, picture = partial(table, direction), partial(claims, direction), partial(draw, direction)
    return Artifact(f"arpit-bengio/fig2{letter}", title, "section 4.2", _PRESETS, rows, decide, picture, _ABOUT)


ARTIFACTS = (_artifact("a", "forward"), _artifact("b", "backward"))
