"""Hayou Figures 3 and 5: which pruned networks train, over depth and sparsity, for three initializations (4.1, G)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.claims import Claim, at_least, at_most, exact
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou.trainable_picture import draw
from epoch0.papers.hayou.trainable_trial import INITS, DepthSpec, untrained
from epoch0.papers.means import mean_and_error
from epoch0.theory.mean_field import chi, edge_of_chaos, q_star

Array = NDArray[np.float64]

MARGIN = 0.1
"""A network is trainable if its test accuracy is that much above the share of the most frequent class."""

DEEP, SPARSE = 60, 0.4
"""Above both the paper calls the ordered phase untrainable."""

BIAS_STD, ORDERED = 0.0, (1.0, 0.3)
"""Not in the paper: sigma_b of the point on the edge of chaos (sigma_w = 1 for tanh and ELU), and sigma_w, sigma_b in
the ordered phase, where chi is 0.70 for tanh and 0.74 for ELU. With sigma_b = 0 no layer would be pruned there."""

ONE_MORE = 0.5
"""More cells train if the difference is nearer to one than to none."""

NAMES = {"rescaled": "EOC + rescaling", "edge": "EOC", "ordered": "ordered phase"}


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        base: every network; its depth is replaced.
        depths: increasing.
        runs: networks of each kind, with weights and batches of their own.
        inputs: pixels of an image.
    """

    base: DepthSpec
    depths: tuple[int, ...]
    runs: int
    inputs: int

    def spec(self, depth: int) -> DepthSpec:
        """The networks of one depth."""
        return replace(self.base, depth=depth)


@dataclass(frozen=True)
class Measured:
    """What was found.

    Attributes:
        accuracy: (runs, initializations, depths, sparsities).
        dead: layers that keep nothing, same shape.
        diverged: same shape.
        chance: share of the most frequent class among the test images.
    """

    accuracy: Array
    dead: Array
    diverged: Array
    chance: float

    @property
    def threshold(self) -> float:
        """Accuracy from which on a network counts as trainable."""
        return self.chance + MARGIN


def trials(setting: Setting) -> list[Trial]:
    """One a depth and run, the deep ones first: they take longest."""
    return [
        Trial("epoch0.papers.hayou.trainable_trial:trained", setting.spec(depth), run)
        for depth in reversed(setting.depths)
        for run in range(setting.runs)
    ]


def gather(setting: Setting, results: Results) -> Measured:
    """The trials' results in one array."""

    def stack(name: str) -> Array:
        each = np.array([np.asarray(one[name], dtype=float) for one in results])
        shape = (len(setting.depths), setting.runs, len(INITS), len(setting.base.sparsities))
        return each.reshape(shape)[::-1].transpose(1, 2, 0, 3)

    return Measured(stack("accuracy"), stack("dead"), stack("diverged"), float(results[0]["chance"]))


def table(init: str, setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a depth and sparsity, of all three initializations; those of this panel first."""
    found = gather(setting, results)
    rows = []
    for name in (init, *(other for other in INITS if other != init)):
        place = INITS.index(name)
        mean, error = mean_and_error(found.accuracy[:, place])
        for i, depth in enumerate(setting.depths):
            for j, sparsity in enumerate(setting.base.sparsities):
                rows.append(
                    {
                        "initialization": NAMES[name],
                        "depth": depth,
                        "sparsity": sparsity,
                        "accuracy": float(mean[i, j]),
                        "accuracy_error": float(error[i, j]),
                        "trainable": float((found.accuracy[:, place, i, j] >= found.threshold).mean()),
                        "dead_layers": float(found.dead[:, place, i, j].mean()),
                        "diverged": float(found.diverged[:, place, i, j].mean()),
                        "runs": setting.runs,
                    }
                )
    return rows


def claims(init: str, setting: Setting, results: Results) -> list[Claim]:
    """What section 4.1 says of that panel, and how it compares with the one before."""
    found = gather(setting, results)
    own = {"rescaled": _rescaled, "edge": _edge, "ordered": _ordered}[init](setting, found)
    return [*own, *(_more(setting, found, a, b) for a, b in _COMPARED[init])]


_COMPARED = {
    "rescaled": (("rescaled", "edge"),),
    "edge": (("edge", "ordered"), ("rescaled", "edge")),
    "ordered": (("edge", "ordered"),),
}
"""Pairs of which the first is said to train where the second does, and in more cells."""


def _cells(setting: Setting, found: Measured, init: str, keep: NDArray[np.bool_]) -> tuple[Array, Array, list[str]]:
    """Mean accuracy, its error and the name of each of some cells (depths, sparsities)."""
    mean, error = mean_and_error(found.accuracy[:, INITS.index(init)])
    names = [[f"depth {d}, {100 * s:g} %" for s in setting.base.sparsities] for d in setting.depths]
    return mean[keep], error[keep], [name for name, kept in zip(np.ravel(names), keep.ravel(), strict=True) if kept]


def _grid(setting: Setting) -> tuple[Array, Array]:
    depth, sparsity = np.meshgrid(setting.depths, setting.base.sparsities, indexing="ij")
    return depth.astype(float), sparsity


def _block(found: Measured, init: str, keep: NDArray[np.bool_]) -> Array:
    """Mean accuracy of each run over some cells: what they have in common shows with fewer runs than each by itself."""
    return np.asarray(found.accuracy[:, INITS.index(init)][:, keep].mean(1))


def _rescaled(setting: Setting, found: Measured) -> list[Claim]:
    depth, sparsity = _grid(setting)
    deep = depth >= DEEP
    claims = []
    for text, keep in (
        (f"with rescaling networks of depth {DEEP} and more train up to 50 % sparsity, on average", sparsity <= 0.5),
        ("... and above 50 %", sparsity > 0.5),
    ):
        mean, error = mean_and_error(_block(found, "rescaled", deep & keep))
        claims.append(at_least(text, [mean], [error], found.threshold, setting.runs, ["mean"]))
    keep = deep & (sparsity >= 0.5)
    gain, error = mean_and_error(_block(found, "rescaled", keep) - _block(found, "edge", keep))
    text = f"rescaling adds {100 * MARGIN:g} % and more from depth {DEEP} and 50 % sparsity on: mean over the cells"
    return [*claims, at_least(text, [gain], [error], MARGIN, setting.runs, ["difference"])]


def _edge(setting: Setting, found: Measured) -> list[Claim]:
    depth, sparsity = _grid(setting)
    mean, error, names = _cells(setting, found, "edge", (depth >= DEEP) & (sparsity >= 0.5))
    text = f"without rescaling nothing trains on the edge of chaos from depth {DEEP} and 50 % sparsity on"
    return [at_most(text, mean, error, found.threshold, setting.runs, names)]


def _ordered(setting: Setting, found: Measured) -> list[Claim]:
    depth, sparsity = _grid(setting)
    keep = (depth > DEEP) & (sparsity > SPARSE)
    mean, error, names = _cells(setting, found, "ordered", keep)
    dead = found.dead[:, INITS.index("ordered")][:, keep]
    return [
        at_most(
            f"in the ordered phase nothing trains above {100 * SPARSE:g} % sparsity and depth {DEEP}",
            mean, error, found.threshold, setting.runs, names,
        ),
        exact(
            "... as at least one layer is fully pruned", bool((dead > 0).all()),
            f"in {(dead > 0).sum():g} of {dead.size} networks; {dead.mean():.3g} layers on average",
            {"share": float((dead > 0).mean()), "mean": float(dead.mean())},
        ),
    ]  # fmt: skip


def _more(setting: Setting, found: Measured, larger: str, smaller: str) -> Claim:
    """Inclusion, and more cells."""
    trains = found.accuracy >= found.threshold
    counts = trains.sum((2, 3)).astype(float)  # (runs, initializations)
    first, second = INITS.index(larger), INITS.index(smaller)
    gained, error = mean_and_error(counts[:, first] - counts[:, second])
    most = trains.mean(0) >= 0.5
    lost = most[second] & ~most[first]
    where = ", ".join(
        f"depth {setting.depths[i]} at {100 * setting.base.sparsities[j]:g} %" for i, j in np.argwhere(lost)
    )
    cells = lost.size
    claim = at_least(
        f"{NAMES[larger]} trains in more cells than {NAMES[smaller]}, of {cells}",
        [gained], [error], ONE_MORE, setting.runs, ["difference"],
    )  # fmt: skip
    both = f"{counts[:, first].mean():.3g} against {counts[:, second].mean():.3g}"
    extra = f"; trained only by {NAMES[smaller]}: {where}" if where else f"; and wherever {NAMES[smaller]} does"
    return replace(claim, evidence=f"{both}; {claim.evidence}{extra}")


def costs(setting: Setting) -> list[Cost]:
    """One cost a depth."""
    found = []
    for depth in setting.depths:
        spec = setting.spec(depth)
        found.append(
            Cost(
                f"{spec.activation} depth {depth}, {spec.data}, {len(INITS) * len(spec.sparsities)} networks as one",
                [trial for trial in trials(setting) if trial.spec == spec],
                partial(untrained, spec, setting.inputs, 10), (setting.inputs,), 10,
                spec.batch_size, spec.steps * spec.batch_size, spec.tested,
            )
        )  # fmt: skip
    return found


def about(init: str, setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.base
    weight_std, bias_std = spec.ordered if init == "ordered" else spec.edge
    how = f", rescaled ({spec.rescaling})" if init == "rescaled" else ""
    gain = float(chi(spec.activation, weight_std, q_star(spec.activation, weight_std, bias_std)))
    return (
        f"{spec.activation}, sigma_w {weight_std:.4g}, sigma_b {bias_std:g} (chi {gain:.3g}){how}; width {spec.width}; "
        f"SNIP on {spec.examples} images; {spec.data}, {spec.steps} steps of SGD at {spec.learning_rate:g}, batch "
        f"{spec.batch_size}, {setting.runs} runs; means (no bars); trainable: {100 * MARGIN:g} % above chance"
    )


def presets(activation: str) -> dict[str, Setting]:
    """Both presets. The paper does not say which point of the edge of chaos, nor which ordered one; see docs/hayou."""
    point = edge_of_chaos(activation, bias_std=BIAS_STD)
    edge = (round(float(point.weight_std), 6), BIAS_STD)
    paper = DepthSpec(
        "mnist", activation, 2, 100, edge, ORDERED, tuple(s / 10 for s in range(1, 10)), 100, "layer",
        steps=10_000, batch_size=100, learning_rate=1e-3, tested=10_000,
    )  # fmt: skip
    quick = replace(
        paper, data="digits", sparsities=(0.1, 0.5, 0.9), steps=400, batch_size=64,
        learning_rate=0.004, tested=360,
    )  # fmt: skip
    return {
        "quick": Setting(quick, (2, 20, 60, 100), 6, 64),
        "paper": Setting(paper, (2, 20, 40, 60, 80, 100), 3, 784),
    }


_TITLES = {
    "rescaled": "Accuracy over depth and sparsity: edge of chaos with rescaling",
    "edge": "Accuracy over depth and sparsity: edge of chaos",
    "ordered": "Accuracy over depth and sparsity: ordered phase",
}


def _artifact(figure: str, activation: str, init: str) -> OldArtifact:
    return OldArtifact(
        f"hayou/{figure}", _TITLES[init], f"Hayou et al., Figure {figure[3:]}, section 4.1", presets(activation),
        trials, partial(table, init), partial(claims, init), partial(_drawn, init),
        lambda setting: setting.base.data, partial(about, init), costs,
    )  # fmt: skip


def _drawn(init: str, setting: Setting, results: Results) -> Any:
    found = gather(setting, results)
    place = INITS.index(init)
    mean = found.accuracy[:, place].mean(0)
    share = (found.accuracy[:, place] >= found.threshold).mean(0)
    return draw(setting.depths, setting.base.sparsities, mean, share, found.dead[:, place].mean(0), found.chance)


FIGURE_3 = tuple(_artifact(f"fig3{letter}", "tanh", init) for letter, init in zip("abc", INITS, strict=True))
FIGURE_5 = tuple(
    _artifact(f"fig5{letter}", activation, init)
    for letter, (activation, init) in zip(
        "abcdef", [(activation, init) for activation in ("elu", "tanh") for init in INITS], strict=True
    )
)
