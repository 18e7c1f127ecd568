"""Price-Tanner Figures 4a, 4b (appendix B): the expected norm of a random sub-vector, between alpha and its root.

The paper's lower bound is linear in the density alpha because of vectors with one entry; typical vectors follow the
upper bound sqrt(alpha).
"""

import math
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_least, at_most, better_fit, increasing
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Table, agrees, by, over_runs
from epoch0.seeds import numpy_generator
from epoch0.theory import growth as theory

_AT_ONCE = 2_000_000  # random numbers held at once
TIGHT = 0.99  # at the widths of networks the upper bound is called tight if the norm is at least this much of it
MODERATE = 10  # "for even moderately large k" the norm behaves like sqrt(alpha): from here on


def norms(spec: Spec, seed: int) -> dict[str, Any]:
    """Mean norm of so many ``draws`` of sub-vectors of several unit vectors, (vectors, densities).

    A ``direction`` is one of the ``"sphere"``, or ``"one-hot"``. All densities share the random numbers: entry i is
    kept at density alpha if its number is below alpha.
    """
    size, draws = spec.size, spec.draws
    found = np.empty((spec.vectors, len(spec.densities)))
    for vector, row in enumerate(found):
        source = numpy_generator(seed, vector)
        squares = source.standard_normal(size) ** 2 if spec.direction == "sphere" else np.eye(1, size)[0]
        squares /= squares.sum()
        total, left = np.zeros(len(row)), draws
        while left:
            count = min(left, max(1, _AT_ONCE // size))
            coins = source.random((count, size))
            total += [np.sqrt((coins < density) @ squares).sum() for density in spec.densities]
            left -= count
        row[:] = total / draws
    return {"norms": found}


def table(found: Found) -> Table:
    """One row a size and density: the mean norm, its standard error over vectors, both bounds and the exact value."""
    direction = found.sweep["direction"]

    def law(cell: Cell, density: float) -> dict[str, Any]:
        exact = theory.expected_subvector_norm(direction, density, cell.spec.size)
        return {"direction": direction, "lower": density, "upper": math.sqrt(density), "exact": exact}

    return found.rows(lambda cell: {"norm": cell["norms"][0]}, law, density=found.sweep["densities"])


def claims(found: Found) -> Claims:
    """Appendix B: both bounds hold, and which of the two is tight."""
    rows, sphere, names = found.table, found.sweep["direction"] == "sphere", "k = {size}, density {density:g}"
    text = "the norm is its exact expectation" if sphere else "the lower bound is attained: the norm is the density"
    decided = {}
    if sphere:
        decided["the norm is at least the density (Lemma 7)"] = rows.claim(at_least, "norm", "lower", names=names)
    decided["the norm is at most sqrt(density)"] = rows.claim(at_most, "norm", "upper", names=names)
    decided[text] = rows.claim(agrees, "norm", "exact", names=names, resolution=0.05)
    columns = {"sqrt(density)": "upper", "density": "lower"}
    shapes = tuple(columns) if sphere else tuple(columns)[::-1]
    for size, mine in rows.by("size"):
        if sphere and size < MODERATE:
            continue
        inner = Table(row for row in mine if row["density"] < 1)  # at 1 both bounds meet, so that it says nothing
        values = inner.of("norm", "norm_error", *(columns[shape] for shape in shapes), "runs")
        large = f"k = {size}: from {MODERATE} on k is 'moderately large'" if sphere else f"k = {size}"
        text = f"the norm has the shape {shapes[0]}, not {shapes[1]}, at densities below 1 ({large})"
        decided[text] = by(better_fit, *values, names=shapes)
    same = rows.alike("norm", "size", "k = {size}", "density {density:g}")
    return {**decided, **(_tightness(found) if sphere else {"the norm does not depend on k": same})}


def _tightness(found: Found) -> Claims:
    """For vectors on the sphere: the upper bound is approached as k grows."""
    densities, sizes = np.array(found.sweep["densities"]), found.sweep["size"]
    shares = [cell["norms"][0] / np.sqrt(densities) for cell in found]
    means = np.transpose([share.mean(1) for share in shares])
    names, where = [f"k = {size}" for size in sizes], [f"density {density:g}" for density in densities]
    text = f"at k = {sizes[-1]} the upper bound is tight: the norm is at least {TIGHT:g} of it"
    return {
        "the norm approaches the upper bound as k grows": over_runs(increasing, means, names=names),
        text: over_runs(at_least, shares[-1], TIGHT, names=where),
    }


def draw(found: Found) -> plots.Figure:
    """The norm against the density, one hollow marker a size, so that none hides another, between its two bounds."""
    direction = found.sweep["direction"]
    picture, axes = plots.figure(6.0, 4.4)
    fine = np.linspace(found.sweep["densities"][0], 1, 200)
    axes.plot(fine, np.sqrt(fine), "--", color=plots.BOUND, label=r"upper bound $\sqrt{\alpha}$")
    axes.plot(fine, fine, ":", color=plots.BOUND, label=r"lower bound $\alpha$ (Lemma 7)")
    for index, (size, rows) in enumerate(found.table.by("size")):
        if direction == "sphere":
            exact = [theory.expected_subvector_norm(direction, float(density), size) for density in fine]
            plots.curve(axes, fine.tolist(), exact, index, linewidth=1.0)
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 3.0 + 2.5 * index}
        plots.means(axes, rows, "density", "norm", index, f"k = {size}", **hollow)
    axes.set(xlabel=r"density $\alpha$ (probability that an entry is kept)", ylabel=r"$E\,\|u_J\|\,/\,\|u\|$")
    axes.set(xlim=(0, 1.03), ylim=(0, 1.05))
    axes.legend(loc="lower right")
    return picture


def _artifact(letter: str, direction: str, kind: str, title: str) -> Artifact:
    """The paper prints no sizes; 784 is the width of its networks."""
    densities = tuple(tenth / 10 for tenth in range(1, 11))
    spec = Spec(direction=direction, densities=densities, vectors=100, draws=10_000)
    paper = Sweep(norms, spec, {"size": (3, 10, 100, 784)}, seed=lambda spec, run: spec.size)
    presets, name = {"quick": paper.but(draws=1000), "paper": paper}, f"price-tanner/fig4{letter}"
    about = f"{{vectors}} unit vectors {kind}, {{draws:,}} sub-vectors each; bars: two standard errors"
    title = f"Norm of a random sub-vector of a vector {title}"
    return Artifact(name, title, "appendix B", presets, table, claims, draw, about)


ARTIFACTS = (
    _artifact("a", "sphere", "uniform on the sphere", "on the sphere"),
    _artifact("b", "one-hot", "with one entry", "with one entry"),
)
