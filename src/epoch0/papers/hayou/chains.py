"""Hayou's Proposition 3: residual networks stay on the edge of chaos when they are pruned (section 3, appendix D)."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, between, linear
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou.chain_trial import METHODS, ChainSpec
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

EXPONENT = 0.5
"""How near to -2 the fitted exponent must be."""

RATE = 0.25
"""Relative difference from the mean field's growth that is allowed."""

SLOPE = 2 * math.sqrt(2) / (3 * math.pi)
"""ReLU: f(c) = c + SLOPE (1 - c)^(3/2) + ..."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        spec: the networks.
        networks: how many.
        start: first block of the fits, past the beginning where 1 - c is not small.
    """

    spec: ChainSpec
    networks: int
    start: int


def trials(setting: Setting) -> list[Trial]:
    """One a network, pruned in every way."""
    function = "epoch0.papers.hayou.chain_trial:correlations"
    return [Trial(function, setting.spec, seed) for seed in range(setting.networks)]


def measured(setting: Setting, results: Results) -> dict[tuple[str, float], Array]:
    """1 - c_l of each network, shape (networks, blocks + 1), by method and sparsity; unpruned once."""
    found = {}
    for method in METHODS:
        for place, sparsity in enumerate(setting.spec.sparsities):
            if sparsity or method == METHODS[0]:
                found[method if sparsity else "unpruned", sparsity] = np.array([one[method][place] for one in results])
    return found


def mean_field(density: float, start: float, blocks: int) -> Array:
    """1 - c_l of an infinitely wide network whose branches keep this share of their weights at random.

    >>> mean_field(0.5, 0.9, 100).shape                         # blocks + 1
    (101,)

    With alpha = density, c' = (c + alpha f(c)) / (1 + alpha) for He's weights (sigma_w^2 = 2).

    Source: Hayou et al. 2021, appendix D; f(c) of ReLU, B.1.
    """
    apart = [start]
    for _ in range(blocks):
        c = 1 - apart[-1]
        if apart[-1] > 1e-4:
            passed = 1 - ((c * math.asin(c) + math.sqrt(1 - c * c)) / math.pi + c / 2)
        else:  # to second order, where the closed form cancels
            passed = apart[-1] - SLOPE * apart[-1] ** 1.5
        apart.append((apart[-1] + density * passed) / (1 + density))
    return np.array(apart)


def log_mean(apart: Array) -> tuple[Array, Array]:
    """Mean over networks of log(1 - c_l) with its standard error: the spread is of factors."""
    mean, error = mean_and_error(np.log(apart))
    return mean, error


def exponents(apart: Array, sparsity: float, start: int) -> Array:
    """The exponent p of 1 - c_l ~ (l + l0)^p in each network.

    The shift l0 is what the beginning leaves behind: (1 - c)^(-1/2) grows by the same step a block from wherever it
    starts, so at any finite depth the plain slope of a log-log plot is above -2. It is taken from the mean field.

    Args:
        apart: shape (networks, blocks + 1).
        sparsity: fraction removed.
        start: first block that counts.
    """
    blocks = apart.shape[1] - 1
    theory = mean_field(1 - sparsity, math.exp(log_mean(apart)[0][0]), blocks) ** -0.5
    step = (theory[-1] - theory[start]) / (blocks - start)
    x = np.log(np.arange(start, blocks + 1) + theory[start] / step - start)
    return np.array([np.polyfit(x, one, 1)[0] for one in np.log(apart[:, start:])])


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a method, sparsity and block."""
    rows = []
    for (method, sparsity), apart in measured(setting, results).items():
        mean, error = log_mean(apart)
        theory = mean_field(1 - sparsity, math.exp(mean[0]), setting.spec.blocks)
        rows += [
            {
                "method": method,
                "sparsity": sparsity,
                "block": block,
                "one_minus_c": math.exp(mean[block]),
                "log_error": float(error[block]),
                "mean_field": float(theory[block]),
                "networks": setting.networks,
            }
            for block in range(setting.spec.blocks + 1)
        ]
    return rows


_WORDS = {"snip": "SNIP", "random": "random masks", "unpruned": "unpruned"}


def _name(method: str, sparsity: float) -> str:
    word = _WORDS[method]
    return word if not sparsity else f"{word}, {100 * sparsity:g} % pruned"


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Proposition 3: 1 - c_l ~ kappa / l^2, pruned or not."""
    found = measured(setting, results)
    kinds = (
        ("not pruned", [key for key in found if key[0] == "unpruned"]),
        ("weights pruned at random", [key for key in found if key[0] == "random"]),
        ("pruned by SNIP", [key for key in found if key[0] == "snip"]),
    )
    claims = []
    for text, keys in kinds:
        mean, error = np.transpose([mean_and_error(exponents(found[key], key[1], setting.start)) for key in keys])
        claims.append(
            between(
                f"{text}: 1 - c_l falls as (l + l0)^-2 (fitted exponent)", mean, error, -2 - EXPONENT, -2 + EXPONENT,
                setting.networks, [_name(*key) for key in keys],
            )
        )  # fmt: skip
    # far apart: neighbours share nearly all of their noise
    blocks = np.unique(np.linspace(setting.start, setting.spec.blocks, 8).astype(int))
    for key, apart in found.items():
        mean, error = log_mean(apart[:, blocks])
        roots = np.exp(-mean / 2)
        claims.append(
            linear(
                f"{_name(*key)}: 1/sqrt(1 - c_l) grows linearly with l, as it does on the edge of chaos",
                blocks, roots, roots * error / 2, setting.networks, least_r2=0.98,
            )
        )  # fmt: skip
    return [*claims, _growth(setting, found)]


def _growth(setting: Setting, found: dict[tuple[str, float], Array]) -> Claim:
    """Beyond the paper: the constant."""
    keys = [key for key in found if key[0] != "snip"]
    steps, expected = [], []
    span = setting.spec.blocks - setting.start
    for key in keys:
        roots = found[key] ** -0.5
        steps.append(mean_and_error((roots[:, -1] - roots[:, setting.start]) / span))
        theory = mean_field(1 - key[1], math.exp(log_mean(found[key])[0][0]), setting.spec.blocks) ** -0.5
        expected.append((theory[-1] - theory[setting.start]) / span)
    mean, error = np.transpose(steps)
    limits = np.array(expected)
    return between(
        f"beyond the paper: unpruned or pruned at random, 1/sqrt(1 - c_l) grows as fast as the mean field says, within "
        f"{100 * RATE:g} %",
        mean, error, (1 - RATE) * limits, (1 + RATE) * limits, setting.networks, [_name(*key) for key in keys],
    )  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """1 - c against the block, log-log; and its inverse root, which is a straight line on the edge of chaos."""
    picture, axes = plots.figure(8.8, 4.8, 1, 2)
    found = measured(setting, results)
    blocks = np.arange(setting.spec.blocks + 1)
    shown = np.unique(np.geomspace(1, setting.spec.blocks, 10).round().astype(int))
    even = np.unique(np.linspace(1, setting.spec.blocks, 10).round().astype(int))
    top = 0.0
    for index, (key, apart) in enumerate(found.items()):
        mean, error = log_mean(apart)
        for place, where, sign in ((0, shown, 1.0), (1, even, -0.5)):
            values, spread = np.exp(sign * mean[where]), 2 * abs(sign) * error[where]
            axes[place].errorbar(
                where, values, yerr=[values * -np.expm1(-spread), values * np.expm1(spread)], linestyle="none",
                color=plots.COLOURS[index], marker=plots.MARKERS[index], capsize=2.5, elinewidth=1.0, label=_name(*key),
            )  # fmt: skip
        if key[0] != "snip":
            theory = mean_field(1 - key[1], math.exp(mean[0]), setting.spec.blocks)
            plots.curve(axes[0], blocks[1:].tolist(), theory[1:].tolist(), index)
            plots.curve(axes[1], blocks[1:].tolist(), (theory[1:] ** -0.5).tolist(), index)
            top = max(top, 1.35 * float(theory[-1] ** -0.5), 1.2 * math.exp(-0.5 * mean[-1]))
    axes[0].plot([], [], color="#333333", label="mean field, random masks")
    axes[0].set(xscale="log", yscale="log", xlabel="block $l$", ylabel="$1-c_l$ (geometric mean)")
    axes[1].set(xlabel="block $l$", ylabel=r"$1/\sqrt{1-c_l}$", ylim=(0, top), title="straight on the edge of chaos")
    plots.legend_below(picture, *axes[0].get_legend_handles_labels(), columns=3)
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.spec
    what = "Gaussian inputs" if spec.data == "gaussian" else f"images of {spec.data}"
    return (
        f"y + W relu(y), {spec.blocks} blocks of width {spec.width}, {spec.pairs} pairs of {what}, "
        f"{setting.networks} networks; bars: two standard errors"
    )


ARTIFACT = OldArtifact(
    "hayou/prop3", "Correlation of two inputs in residual networks, pruned and not", "Hayou et al., Proposition 3",
    {
        "quick": Setting(ChainSpec(80, 200, "digits", 50, 20, (0.0, 0.5, 0.9)), 8, 15),
        "paper": Setting(ChainSpec(80, 400, "mnist", 100, 50, (0.0, 0.5, 0.9, 0.98)), 8, 16),
    },
    trials, table, claims, draw, lambda setting: None if setting.spec.data == "gaussian" else setting.spec.data, about,
)  # fmt: skip
