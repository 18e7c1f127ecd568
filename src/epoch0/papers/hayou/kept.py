"""Hayou Figures 1a, 1b: a picture of what SNIP keeps, on the edge of chaos and in the chaotic phase (section 2.2)."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between, exact
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou.kept_trial import KeptSpec
from epoch0.papers.means import mean_and_error
from epoch0.theory.mean_field import chi, q_star
from epoch0.theory.pruning import PredictedDensity, predicted_density

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

UNIFORM = 2.0
"""A spread over layers is uniform if each keeps its share within this factor."""

CLOSE = 0.1
"""How near a predicted density must be to the measured one, absolute."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        spec: the networks.
        networks: how many; each with images of its own.
        inputs: number of pixels of an image.
    """

    spec: KeptSpec
    networks: int
    inputs: int


def trials(setting: Setting) -> list[Trial]:
    """One a network."""
    return [Trial("epoch0.papers.hayou.kept_trial:kept", setting.spec, seed) for seed in range(setting.networks)]


def gain(spec: KeptSpec) -> float:
    """The gain of a layer at the fixed point of the variance."""
    q = q_star(spec.activation, spec.weight_std, spec.bias_std)
    return float(chi(spec.activation, spec.weight_std, q))


@lru_cache(maxsize=32)
def _predicted(spec: KeptSpec, inputs: int, classes: int, square: float, correlation: float) -> PredictedDensity:
    widths = [inputs, *[spec.width] * (spec.depth - 1), classes]
    return predicted_density(
        spec.activation, spec.weight_std, spec.bias_std, widths, spec.sparsity, input_square=square,
        input_correlation=correlation, examples=spec.examples,
    )  # fmt: skip


def predicted(setting: Setting, results: Results) -> Array:
    """Mean-field density of each layer, for inputs as correlated as these."""
    square, correlation = (float(np.mean([one[name] for one in results])) for name in ("square", "correlation"))
    found = _predicted(setting.spec, setting.inputs, 10, round(square, 3), round(max(correlation, 0.0), 3))
    return np.array(list(found.density.values()))


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a layer: what is kept of it, how often nothing is, and the prediction."""
    densities = np.array([one["density"] for one in results])
    mean, error = mean_and_error(densities)
    expected = predicted(setting, results)
    return [
        {
            "layer": layer + 1,
            "density": float(mean[layer]),
            "density_error": float(error[layer]),
            "predicted": float(expected[layer]),
            "fully_pruned": float((densities[:, layer] == 0).mean()),
            "chi": gain(setting.spec),
            "networks": setting.networks,
        }
        for layer in range(setting.spec.depth)
    ]


def _counts(results: Results) -> tuple[list[int], float, float]:
    dead = [int(one["dead"]) for one in results]
    return dead, *mean_and_error(np.array(dead, dtype=float))


def _law(setting: Setting, results: Results) -> Claim:
    """Beyond the paper."""
    mean, error = mean_and_error(np.array([one["density"] for one in results]))
    expected = predicted(setting, results)
    return between(
        f"beyond the paper: the mean-field prediction of each layer's density is within {CLOSE:g}",
        mean, error, expected - CLOSE, expected + CLOSE, setting.networks,
        [f"layer {layer + 1}" for layer in range(len(mean))],
    )  # fmt: skip


def edge_claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 2.2: on the edge of chaos no layer dies, and what is kept is spread evenly."""
    dead, mean, _ = _counts(results)
    densities = np.array([one["density"] for one in results])
    middle, error = mean_and_error(densities[:, 1:-1])
    kept = 1 - setting.spec.sparsity
    first, first_error = mean_and_error(densities[:, 0])
    evidence = f"{mean:g} of {setting.spec.depth} layers on average, at most {max(dead)} in {len(dead)} networks"
    names = [f"layer {layer + 2}" for layer in range(len(middle))]
    return [
        exact("no layer is fully pruned", max(dead) == 0, evidence, {"most": max(dead), "mean": mean}),
        between(
            f"the spread is uniform: each layer between the first and the last keeps {kept:g} within a factor "
            f"{UNIFORM:g}",
            middle, error, kept / UNIFORM, kept * UNIFORM, setting.networks, names,
        ),
        between(
            f"... and so does the first layer, with {setting.inputs} inputs a unit",
            [first], [first_error], kept / UNIFORM, kept * UNIFORM, setting.networks, ["layer 1"],
        ),
        _law(setting, results),
    ]  # fmt: skip


def chaotic_claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 2.2: gradients explode in the chaotic phase, and whole layers are pruned."""
    dead, mean, error = _counts(results)
    densities = np.array([one["density"] for one in results])
    half = setting.spec.depth // 2
    drop, drop_error = mean_and_error(densities[:, half:].mean(1) - densities[:, :half].mean(1))
    evidence = f"{mean:g} ± {error:.2g} of {setting.spec.depth} layers on average, at least {min(dead)}"
    return [
        exact("whole layers are pruned, in every network", min(dead) > 0, evidence, {"least": min(dead), "mean": mean}),
        at_least(
            "a tenth of the layers or more is fully pruned, on average", [mean], [error], setting.spec.depth / 10,
            setting.networks, ["layers"],
        ),
        at_most(
            "gradients explode on their way back: the second half of the layers keeps less than the first",
            [drop], [drop_error], 0.0, setting.networks, ["difference of densities"],
        ),
        _law(setting, results),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """On the left the paper's picture, one network; on the right all networks, layer by layer, with the prediction."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import PercentFormatter

    spec = setting.spec
    picture, axes = plots.figure(8.6, 4.8, mosaic=[["map", "layers"]], width_ratios=[1.15, 1.0])
    engine = picture.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(wspace=0.06)  # between the colour bar and the label of the next panel
    # the paper's axes: a pixel (i, j) is neuron j of layer i
    rows = np.asarray(results[0]["rows"])
    image = axes["map"].imshow(
        100 * rows.T, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=100, interpolation="nearest",
        extent=(0.5, len(rows) + 0.5, 0.5, spec.width + 0.5),
    )  # fmt: skip
    axes["map"].grid(visible=False)
    axes["map"].set(xlabel="hidden layer", ylabel="neuron", title="one network: incoming weights kept")
    picture.colorbar(image, ax=axes["map"], format=PercentFormatter(decimals=0), pad=0.02)
    _by_layer(axes["layers"], setting, results)
    plots.legend_below(picture, *axes["layers"].get_legend_handles_labels(), columns=2)
    return picture


def _by_layer(axes: "Axes", setting: Setting, results: Results) -> None:
    rows = table(setting, results)
    layers = [row["layer"] for row in rows]
    for index, one in enumerate(results):
        label = "one network" if index == 0 else None
        axes.plot(layers, 100 * np.asarray(one["density"]), color="#999999", linewidth=0.5, alpha=0.6, label=label)
    plots.points(
        axes, layers, [100 * row["density"] for row in rows], [100 * row["density_error"] for row in rows], 0,
        f"mean of {setting.networks} networks", markersize=2.5, elinewidth=0.6, capsize=0,
    )  # fmt: skip
    plots.curve(axes, layers, [100 * row["predicted"] for row in rows], 1, "mean-field prediction", zorder=3)
    axes.axhline(100 * (1 - setting.spec.sparsity), color=plots.BOUND, linestyle=":", label="share of all weights kept")
    dead = mean_and_error(np.array([float(one["dead"]) for one in results]))[0]
    axes.set(xlabel="layer", ylabel="weights kept (%)", ylim=(-3, 103), title=f"{dead:g} layers keep nothing (mean)")


def about(phase: str, setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.spec
    return (
        f"{spec.activation}, {phase}: sigma_w {spec.weight_std:.4g}, sigma_b {spec.bias_std:g}, chi {gain(spec):.3g}; "
        f"depth {spec.depth}, width {spec.width}, {100 * spec.sparsity:g} % pruned by SNIP on {spec.examples} images "
        f"of {spec.data}, {setting.networks} networks; bars: two standard errors"
    )


EDGE, CHAOS = 1.30415, 2.0
"""sigma_w for tanh at sigma_b = 0.2: on the edge of chaos, and beyond it."""


def _presets(weight_std: float) -> dict[str, Setting]:
    return {
        name: Setting(KeptSpec(data, 100, 100, "tanh", weight_std, 0.2, 0.7, 100), networks, pixels)
        for name, data, networks, pixels in (("quick", "digits", 5, 64), ("paper", "mnist", 10, 784))
    }


ARTIFACTS = (
    OldArtifact(
        "hayou/fig1a", "Weights that SNIP keeps of each neuron, on the edge of chaos", "Hayou et al., Figure 1a",
        _presets(EDGE), trials, table, edge_claims, draw, lambda setting: setting.spec.data,
        partial(about, "on the edge of chaos"),
    ),
    OldArtifact(
        "hayou/fig1b", "Weights that SNIP keeps of each neuron, in the chaotic phase", "Hayou et al., Figure 1b",
        _presets(CHAOS), trials, table, chaotic_claims, draw, lambda setting: setting.spec.data,
        partial(about, "chaotic phase"),
    ),
)  # fmt: skip
