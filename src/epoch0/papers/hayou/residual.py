"""Hayou Figures 2 and 4: what SNIP keeps of each layer of a ResNet and of a Stable ResNet (section 3, appendix G)."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.claims import Claim, at_least, at_most
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.residual_trial import ResidualSpec
from epoch0.papers.means import mean_and_error

Array = NDArray[np.float64]

SPARSITIES = (0.9, 0.98, 0.995)


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        spec: the network; ``stable``, ``activation`` and ``batch_norm`` are replaced.
        activations: those compared.
        modes: of batch norm.
        networks: how many of each kind.
    """

    spec: ResidualSpec
    activations: tuple[str, ...]
    modes: tuple[str, ...]
    networks: int


@dataclass(frozen=True)
class Pair:
    """A ResNet and the Stable ResNet with the same weights, of one activation and batch-norm mode.

    Attributes:
        activation: the nonlinearity.
        mode: of batch norm while scoring.
        names: of the layers.
        weights: how many weights each has.
        plain: densities, shape (networks, sparsities, layers).
        stable: likewise.
        critical: critical sparsities, shape (2, networks), the plain ones first.
    """

    activation: str
    mode: str
    names: list[str]
    weights: list[int]
    plain: Array
    stable: Array
    critical: Array

    @property
    def name(self) -> str:
        """For claims."""
        return f"{self.activation}, batch norm in {self.mode} mode"


def _kinds(setting: Setting) -> list[tuple[str, str]]:
    return [(activation, mode) for activation in setting.activations for mode in setting.modes]


def trials(setting: Setting) -> list[Trial]:
    """One a network; the figures share those that they have in common."""
    return [
        Trial(
            "epoch0.papers.hayou.residual_trial:densities",
            replace(setting.spec, activation=activation, batch_norm=mode, stable=stable), seed,
        )
        for activation, mode in _kinds(setting)
        for stable in (False, True)
        for seed in range(setting.networks)
    ]  # fmt: skip


def gather(setting: Setting, results: Results) -> list[Pair]:
    """Plain and stable networks side by side."""
    pairs = []
    count = setting.networks
    for place, (activation, mode) in enumerate(_kinds(setting)):
        mine = [results[(2 * place + stable) * count :][:count] for stable in range(2)]
        plain, stable = (np.array([one["density"] for one in each]) for each in mine)
        critical = np.array([[one["critical"] for one in each] for each in mine])
        first = mine[0][0]
        pairs.append(Pair(activation, mode, list(first["names"]), list(first["weights"]), plain, stable, critical))
    return pairs


def short(name: str) -> str:
    """A layer's name without what all have in common."""
    return name.removesuffix(".weight")


def sections(names: list[str]) -> dict[str, list[int]]:
    """Places of the 3x3 convolutions of each section of the network, shortcuts left out."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        first, _, rest = name.partition(".")
        if first.startswith("layer") and "downsample" not in rest:
            found.setdefault(first, []).append(place)
    return found


def unevenness(density: Array, names: list[str]) -> Array:
    """Standard deviation over mean of the densities in a section, averaged over the sections.

    >>> unevenness(np.array([[0.1, 0.1, 0.3]]), ["layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1"]).round(3)
    array([0.566])

    Args:
        density: shape (networks, layers).
        names: of the layers.

    Returns:
        Shape (networks,). A section of which nothing is left counts as if one layer had it all.
    """
    parts = []
    for places in sections(names).values():
        mine = density[:, places]
        mean, most = mine.mean(1), math.sqrt(len(places) - 1) if len(places) > 1 else 0.0
        parts.append(np.where(mean > 0, mine.std(1) / np.where(mean > 0, mean, 1.0), most))
    return np.asarray(np.mean(parts, axis=0))


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a kind of network, sparsity and layer."""
    rows = []
    for pair in gather(setting, results):
        for stable, densities in ((False, pair.plain), (True, pair.stable)):
            critical, critical_error = mean_and_error(pair.critical[int(stable)])
            for place, sparsity in enumerate(setting.spec.sparsities):
                mean, error = mean_and_error(densities[:, place])
                rows += [
                    {
                        "activation": pair.activation,
                        "batch_norm": pair.mode,
                        "network": "stable" if stable else "plain",
                        "sparsity": sparsity,
                        "layer": short(name),
                        "weights": pair.weights[layer],
                        "density": float(mean[layer]),
                        "density_error": float(error[layer]),
                        "fully_pruned": float((densities[:, place, layer] == 0).mean()),
                        "critical_sparsity": critical,
                        "critical_sparsity_error": critical_error,
                        "networks": setting.networks,
                    }
                    for layer, name in enumerate(pair.names)
                ]
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 3: Stable ResNet spreads what is kept more evenly, and prunes its deeper layers less."""
    return [claim for pair in gather(setting, results) for claim in _of_pair(setting, pair)]


def _of_pair(setting: Setting, pair: Pair) -> list[Claim]:
    names = [f"{100 * sparsity:g} %" for sparsity in setting.spec.sparsities]
    count = setting.networks
    even, deep, dead = [], [], []
    last = list(sections(pair.names).values())[-1]
    for place in range(len(names)):
        plain, stable = pair.plain[:, place], pair.stable[:, place]
        even.append(mean_and_error(unevenness(stable, pair.names) - unevenness(plain, pair.names)))
        deep.append(mean_and_error(stable[:, last].mean(1) - plain[:, last].mean(1)))
        dead.append(mean_and_error((stable == 0).sum(1) - (plain == 0).sum(1).astype(float)))
    gap, gap_error = mean_and_error(pair.critical[1] - pair.critical[0])
    means = ", ".join(f"{unevenness(d[:, -1], pair.names).mean():.2f}" for d in (pair.plain, pair.stable))
    (even_mean, even_error), (deep_mean, deep_error), (dead_mean, dead_error) = (
        np.transpose(each) for each in (even, deep, dead)
    )
    plain_cr, stable_cr = pair.critical.mean(1)
    return [
        at_most(
            f"{pair.name}: within each section the stable network is more uniform (difference of sd/mean; at "
            f"{names[-1]} plain and stable have {means})",
            even_mean, even_error, 0.0, count, names,
        ),
        at_least(f"{pair.name}: it keeps more of the last section", deep_mean, deep_error, 0.0, count, names),
        at_most(f"{pair.name}: it has no more fully pruned layers", dead_mean, dead_error, 0.0, count, names),
        at_least(
            f"{pair.name}: its critical sparsity is higher ({stable_cr:.4f} against {plain_cr:.4f})",
            [gap], [gap_error], 0.0, count, ["difference"],
        ),
    ]  # fmt: skip


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.spec
    return (
        f"ResNet-{spec.depth}, channels times {spec.width}, He's weights; SNIP on {spec.examples} images of "
        f"{spec.data}, batch norm in {' and '.join(setting.modes)} mode; {setting.networks} networks; "
        "bars: two standard errors"
    )


_QUICK = ResidualSpec("digits", 32, 1, False, "relu", "train", 128, SPARSITIES)
_PAPER = ResidualSpec("cifar10", 32, 2, False, "relu", "train", 128, SPARSITIES)

BOTH_MODES = {
    "quick": Setting(_QUICK, ("relu",), ("train", "eval"), 8),
    "paper": Setting(_PAPER, ("relu",), ("train", "eval"), 6),
}
BOTH_ACTIVATIONS = {
    "quick": Setting(_QUICK, ("relu", "tanh"), ("train",), 8),
    "paper": Setting(_PAPER, ("relu", "tanh"), ("train",), 6),
}
