"""Arpit-Bengio Figure 3 (section 4.3): the gradient norms of networks whose widths vary from layer to layer.

He's variance 2/fan-out keeps the norm on the way forward; on the way back the step from layer l+1 to l then multiplies
its expected square by n_l / n_(l+1). So the squared gradient ratio at layer l is n_l / n_L in the mean, exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.claims import Claim, between, equal_within_error, increasing
from epoch0.experiments.experiment import Trial
from epoch0.papers.arpit_bengio.laws import Band, band, mean
from epoch0.papers.arpit_bengio.norms import NormsSpec
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error
from epoch0.seeds import numpy_generator

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.arpit_bengio.norms:deep"

RESOLUTION = 0.1
"""The squared ratio follows the widths if a relative difference of 10 % would have been seen and was not."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        width: mean width of a layer.
        variations: v, increasing; each layer's width is drawn uniformly from the integers width - v to width + v.
        depth: number of hidden layers.
        inputs: of each network.
        networks: how many for each v, each with its own widths, weights and inputs.
    """

    width: int
    variations: tuple[int, ...]
    depth: int
    inputs: int
    networks: int


@dataclass(frozen=True)
class Varied:
    """The networks of one variation, measured.

    Attributes:
        variation: v.
        widths: shape (networks, layers).
        ratio: mean gradient ratio over the inputs of each network, shape (networks, layers).
        square: mean squared ratio, the same shape.
    """

    variation: int
    widths: Array
    ratio: Array
    square: Array

    @property
    def name(self) -> str:
        """For the evidence of claims."""
        return f"v = {self.variation}"

    @property
    def std_over_inputs(self) -> Array:
        """Of the ratio within each network, shape (networks, layers): the bars of the paper's figure."""
        return np.asarray(np.sqrt(np.maximum(self.square - self.ratio**2, 0)))

    @property
    def off_one(self) -> Array:
        """Mean of ``(ratio - 1)^2`` over layers and inputs, shape (networks,)."""
        return np.asarray((self.square - 2 * self.ratio + 1).mean(1))


def spec_of(setting: Setting, variation: int, network: int) -> NormsSpec:
    """One network, its widths drawn."""
    source = numpy_generator(variation, network)
    low, high = setting.width - variation, setting.width + variation
    widths = source.integers(low, high, size=setting.depth, endpoint=True)
    return NormsSpec(tuple(widths.tolist()), "he", setting.inputs, first=network)


def trials(setting: Setting) -> list[Trial]:
    """One trial a network."""
    return [
        Trial(TRIAL, spec_of(setting, variation, network), seed=variation)
        for variation in setting.variations
        for network in range(setting.networks)
    ]


def gather(setting: Setting, results: Results) -> list[Varied]:
    """The measurements of each variation."""
    found = []
    for place, variation in enumerate(setting.variations):
        mine = results[place * setting.networks : (place + 1) * setting.networks]
        names = ("gradient", "gradient_square")
        ratio, square = (np.concatenate([np.asarray(one[name]) for one in mine]) for name in names)
        widths = [spec_of(setting, variation, network).widths for network in range(setting.networks)]
        found.append(Varied(variation, np.array(widths, dtype=np.float64), ratio, square))
    return found


def exact_band(setting: Setting, variation: int, network: int, layer: int) -> Band:
    """The exact law of the ratio at one layer of one network."""
    return band(spec_of(setting, variation, network), "gradient", layer)


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a variation, network and layer."""
    rows = []
    for varied in gather(setting, results):
        over_inputs = varied.std_over_inputs
        for network in range(setting.networks):
            spec = spec_of(setting, varied.variation, network)
            for layer in range(1, setting.depth + 1):
                rows.append(
                    {
                        "variation": varied.variation,
                        "network": network,
                        "layer": layer,
                        "width": int(varied.widths[network, layer - 1]),
                        "ratio": float(varied.ratio[network, layer - 1]),
                        "std_over_inputs": float(over_inputs[network, layer - 1]),
                        "mean_square": float(varied.square[network, layer - 1]),
                        "exact_mean": mean(spec, "gradient", layer),
                        "exact_mean_square": varied.widths[network, layer - 1] / varied.widths[network, -1],
                    }
                )
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 4.3: closer to 1 and of smaller variance for small v; and what the widths predict."""
    found = gather(setting, results)
    count, names = setting.networks, [varied.name for varied in found]
    off, off_error = _both([varied.off_one for varied in found])
    inputs, inputs_error = _both([varied.std_over_inputs.mean(1) for varied in found])
    layers, layers_error = _both([varied.ratio.std(axis=1) for varied in found])
    relative = [varied.square * varied.widths[:, -1:] / varied.widths for varied in found]
    follows, follows_error = _both([one.mean(1) for one in relative])
    steady = found[0]
    ratio, error = mean_and_error(steady.ratio)
    expected = [exact_band(setting, steady.variation, 0, layer) for layer in range(1, setting.depth + 1)]
    rms = np.sqrt(off)
    return [
        increasing(
            "the ratio is further from 1 the more the widths vary (root of the mean of (ratio - 1)^2)",
            rms, off_error / (2 * rms), count, names,
        ),
        increasing("the ratio differs more between the layers of a network", layers, layers_error, count, names),
        increasing("the ratio varies more between the inputs of a network", inputs, inputs_error, count, names),
        between(
            f"at {steady.name} the mean ratio is inside the exact law's 95 % band, at every layer",
            ratio, error, [one.low for one in expected], [one.high for one in expected], count,
            [f"layer {layer}" for layer in range(1, setting.depth + 1)],
        ),
        equal_within_error(
            "the mean squared ratio at layer l is n_l / n_L, as the exact law says",
            np.stack([follows, np.ones_like(follows)], 1), np.stack([follows_error, np.zeros_like(follows)], 1), count,
            resolution=RESOLUTION, settings=names, groups=("measured over n_l / n_L", "1"),
        ),
    ]  # fmt: skip


def _both(values: Sequence[Array]) -> tuple[Array, Array]:
    """Means over networks and their errors."""
    mean, error = np.transpose([mean_and_error(one) for one in values])
    return mean, error


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"{setting.networks} networks of {setting.depth} layers for each v, widths U({setting.width} - v, "
        f"{setting.width} + v), {setting.inputs} inputs each; bars: std over inputs, right: two standard errors"
    )
