"""Arpit-Bengio Figures 1a, 1b (section 4.1): what is measured at which width and layer, and the tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.experiment import Trial
from epoch0.papers.arpit_bengio.laws import Quantity, band
from epoch0.papers.arpit_bengio.norms import INITS, Init, NormsSpec, weight_stds
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error

Array = NDArray[np.float64]
TRIAL = "epoch0.papers.arpit_bengio.norms:deep"


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        widths: of all hidden layers, one network kind each, increasing.
        depth: number of hidden layers.
        inputs: of each network.
        networks: how many at each width, of either initialization; each has its own inputs. Narrow networks differ
            more from each other, and cost less.
    """

    widths: tuple[int, ...]
    depth: int
    inputs: int
    networks: tuple[int, ...]


_UNITS = 2000
"""A trial has so many networks that their widths add up to about this."""


@dataclass(frozen=True)
class Kind:
    """The networks of one width and initialization, measured.

    Attributes:
        spec: what they are.
        found: what :func:`epoch0.papers.arpit_bengio.norms.deep` returned, all networks together.
    """

    spec: NormsSpec
    found: dict[str, Array]

    @property
    def width(self) -> int:
        """Of the hidden layers."""
        return self.spec.widths[0]

    @property
    def networks(self) -> int:
        """How many there are."""
        return len(self.found["activation"])

    @property
    def name(self) -> str:
        """For the evidence of claims."""
        return f"width {self.width}"


def blocks(setting: Setting) -> list[tuple[Init, int, NormsSpec]]:
    """The networks of each trial, with their initialization and width."""
    return [
        (init, width, NormsSpec((width,) * setting.depth, init, setting.inputs, first=first, networks=count))
        for init in INITS
        for width, networks in zip(setting.widths, setting.networks, strict=True)
        for block in [max(1, _UNITS // width)]
        for first in range(0, networks, block)
        for count in [min(block, networks - first)]
    ]


def trials(setting: Setting) -> list[Trial]:
    """A few networks a trial; kinds share no random numbers. Both figures are made of the same trials."""
    return [Trial(TRIAL, spec, seed=2 * width + INITS.index(init)) for init, width, spec in blocks(setting)]


def gather(setting: Setting, results: Results) -> dict[tuple[Init, int], Kind]:
    """Each kind of network with its measurements, by initialization and width."""
    kinds: dict[tuple[Init, int], list[Any]] = {}
    for (init, width, _), result in zip(blocks(setting), results, strict=True):
        kinds.setdefault((init, width), []).append(result)
    return {
        (init, width): Kind(
            NormsSpec((width,) * setting.depth, init, setting.inputs),
            {name: np.concatenate([np.asarray(one[name]) for one in mine]) for name in mine[0]},
        )
        for (init, width), mine in kinds.items()
    }


def table(quantity: Quantity, setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row an initialization, width and layer: the mean ratio, its spreads, and the exact law."""
    rows = []
    for (init, width), kind in gather(setting, results).items():
        mean, error = mean_and_error(kind.found[quantity])
        over_inputs = np.sqrt(np.maximum(kind.found[f"{quantity}_square"] - kind.found[quantity] ** 2, 0))
        for layer in range(1, setting.depth + 1):
            exact = band(kind.spec, quantity, layer)
            rows.append(
                {
                    "init": init,
                    "width": width,
                    "layer": layer,
                    "ratio": float(mean[layer - 1]),
                    "ratio_error": float(error[layer - 1]),
                    "std_over_inputs": float(over_inputs[:, layer - 1].mean()),
                    "mean_square": float(kind.found[f"{quantity}_square"][:, layer - 1].mean()),
                    "networks": kind.networks,
                    "exact_mean": exact.mean,
                    "exact_low": exact.low,
                    "exact_high": exact.high,
                }
            )
    return rows


def rows_of(rows: list[dict[str, Any]], init: Init, width: int | None = None) -> list[dict[str, Any]]:
    """The rows of an initialization, perhaps of one width only, in the order of the layers."""
    return [row for row in rows if row["init"] == init and width in (None, row["width"])]


def off_one(kind: Kind, quantity: Quantity) -> tuple[float, float]:
    """Mean of ``(ratio - 1)^2`` over layers, inputs and networks, and its standard error over networks."""
    squares = kind.found[f"{quantity}_square"] - 2 * kind.found[quantity] + 1
    mean, error = mean_and_error(squares.mean(1))
    return float(mean), float(error)


def step_spread(kind: Kind) -> tuple[float, float]:
    """Variance of one layer's squared norm ratio over its exact value 5/width, and its standard error.

    Layers are independent of each other, so that all of them count: expected is 1, whatever the correlation of inputs.
    """
    widths = np.array(kind.spec.widths)
    expected = widths * np.square(weight_stds(kind.spec)[:-1]) / 2
    relative = kind.found["step_square"] / expected**2 - 2 * kind.found["step"] / expected + 1
    mean, error = mean_and_error((relative * widths / 5).mean(1))
    return float(mean), float(error)


def first_layer(kind: Kind) -> tuple[float, float, float]:
    """Mean squared gradient ratio at layer 1 in networks of one width, what is predicted for it, and their error.

    ``delta^l . h^l`` is the same number at every layer, since the loss depends on a layer's scale in the same way
    wherever it is taken. So the part of the gradient that points along the activations does not get new random signs on
    its way back, as Lemma 5 takes for granted. With the alignment a at the last layer (1 if there is no dependence) the
    mean squared ratio is ``1 + 2 (L - 1) (a - 1) / width`` at layer 1, up to 1/width^2.
    """
    depth, width = len(kind.spec.widths), kind.width
    measured = kind.found["gradient_square"][:, 0]
    expected = 1 + 2 * (depth - 1) * (kind.found["alignment"] - 1) / width
    difference, error = mean_and_error(measured - expected)
    mean = float(measured.mean())
    return mean, mean - float(difference), float(error)


def about(setting: Setting) -> str:
    """The setting in one line."""
    widths, networks = (", ".join(str(one) for one in many) for many in (setting.widths, setting.networks))
    return (
        f"{setting.depth} layers of width {widths}; {networks} networks, {setting.inputs} inputs in R^500 each; "
        "bars: two standard errors over networks"
    )

