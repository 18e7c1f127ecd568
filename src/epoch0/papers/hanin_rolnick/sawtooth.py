"""Hanin-Rolnick Figure 3: Telgarsky's sawtooth, and what is left of its pieces when weights and biases are disturbed.

The paper does not print its noise: here Gaussian noise of one standard deviation is added to every weight and bias. The
weights of the sawtooth are 2 and 4 in size, its biases 1.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from epoch0 import plots, regions
from epoch0.experiments.claims import Claim, at_most, exact, increasing
from epoch0.experiments.experiment import Trial
from epoch0.networks.constructions import sawtooth
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error
from epoch0.seeds import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

NOISES = (0.1, 0.3)
"""Standard deviations of the noise after which "most" pieces should be gone: a twentieth of the smallest weight, and a
variance of about 0.1."""

MOST = 0.5
"""Noise destroys most of the pieces if it leaves at most this share of them."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        depths: numbers of hidden layers, two neurons each; the last is the largest, and the one that is disturbed.
        noises: standard deviations of the noise, increasing, the first one positive.
        networks: how many for each of them.
        drawn: noises of which one network is drawn.
    """

    depths: tuple[int, ...]
    noises: tuple[float, ...]
    networks: int
    drawn: tuple[float, float] = (0.1, 0.3)


@dataclass(frozen=True)
class SawtoothSpec:
    """Disturbed sawtooths.

    Attributes:
        depth: number of hidden layers.
        noise: standard deviation of what is added to each weight and bias.
        networks: how many; one without noise.
    """

    depth: int
    noise: float
    networks: int


def pieces(spec: SawtoothSpec, seed: int) -> dict[str, Any]:
    """Count the linear pieces on [0, 1].

    Returns:
        ``linear`` and ``count``: linear and activation regions, (networks,); of the first network ``knots``: ends and
        break points in [0, 1], and ``values`` there.
    """
    torch.set_num_threads(1)
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    linear, count = [], []
    drawn: tuple[Array, Array] | None = None
    for network in range(spec.networks):
        net = disturbed(spec, seed, network)
        found = regions.on_line(net, ends[0], ends[1])
        linear.append(found.linear_count)  # type: ignore[union-attr]
        count.append(found.count)
        if drawn is None:
            knots = np.concatenate([[0.0], found.breakpoints, [1.0]])  # type: ignore[union-attr]
            with torch.no_grad():
                drawn = knots, net(torch.from_numpy(knots)[:, None])[:, 0].numpy()
    assert drawn is not None
    numbers = {"linear": np.array(linear, dtype=np.float64), "count": np.array(count, dtype=np.float64)}
    return {**numbers, "knots": drawn[0], "values": drawn[1]}


def disturbed(spec: SawtoothSpec, seed: int, network: int) -> nn.Module:
    """The sawtooth in float64 with noise on every weight and bias; the same draw for every size of the noise."""
    net = sawtooth(spec.depth, dtype=torch.float64)
    source = generator(seed, network)
    with torch.no_grad():
        for parameter in net.parameters():
            draw: Tensor = torch.randn(parameter.shape, generator=source, dtype=torch.float64)
            parameter.add_(spec.noise * draw)
    return net


def trials(setting: Setting) -> list[Trial]:
    """The sawtooths as they are, then one trial a noise."""
    function = "epoch0.papers.hanin_rolnick.sawtooth:pieces"
    whole = [Trial(function, SawtoothSpec(depth, 0.0, 1), 0) for depth in setting.depths]
    noisy = [SawtoothSpec(setting.depths[-1], noise, setting.networks) for noise in setting.noises]
    return whole + [Trial(function, spec, seed) for seed, spec in enumerate(noisy)]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a depth without noise, and one a noise."""
    depths = [*setting.depths, *[setting.depths[-1]] * len(setting.noises)]
    noises = [*[0.0] * len(setting.depths), *setting.noises]
    rows = []
    for depth, noise, result in zip(depths, noises, results, strict=True):
        linear, count = np.asarray(result["linear"]), np.asarray(result["count"])
        mean, error = mean_and_error(linear)
        activation, activation_error = mean_and_error(count)
        rows.append(
            {
                "depth": depth, "neurons": 2 * depth, "noise": noise, "networks": len(linear), "pieces": mean,
                "pieces_error": error if len(linear) > 1 else 0.0, "without_noise": 2**depth,
                "activation_regions": activation,
                "activation_regions_error": activation_error if len(linear) > 1 else 0.0,
                "most_pieces": int(linear.max()),
            }
        )  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """2^n pieces exactly, from 2n neurons; noise destroys most of them, the more the larger it is."""
    rows = table(setting, results)
    whole, noisy = rows[: len(setting.depths)], rows[len(setting.depths) :]
    wrong = [row["depth"] for row in whole if row["pieces"] != row["without_noise"]]
    mean, error, noise = (np.array([row[name] for row in noisy]) for name in ("pieces", "pieces_error", "noise"))
    names = [f"noise {one:g}" for one in noise]
    total = 2 ** setting.depths[-1]
    shown = ", ".join(f"{row['pieces']:g}" for row in whole)
    return [
        exact(
            "without noise there are exactly 2^n linear pieces, 2^(n-1) teeth, from n layers of two neurons",
            not wrong, f"{shown} pieces from {', '.join(str(2 * depth) for depth in setting.depths)} neurons",
            {"wrong": len(wrong)},
        ),
        *(
            at_most(
                f"noise of standard deviation {size:g} leaves at most half of the pieces",
                mean[noise == size] / total, error[noise == size] / total, MOST, setting.networks, [f"noise {size:g}"],
            )
            for size in NOISES
        ),
        increasing(
            "the larger the noise the more pieces are lost", total - mean, error, setting.networks, names
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """The sawtooth, two disturbed ones, and the number of pieces against the noise."""
    names = ["0", *(f"{noise:g}" for noise in setting.drawn)]
    picture, panels = plots.figure(
        11.0, 4.6, mosaic=[["0", "count"], [names[1], "count"], [names[2], "count"]], width_ratios=[1.5, 1.0]
    )
    places = [len(setting.depths) - 1, *(len(setting.depths) + setting.noises.index(n) for n in setting.drawn)]
    for index, (name, place) in enumerate(zip(names, places, strict=True)):
        axes, one = panels[name], results[place]
        axes.plot(one["knots"], one["values"], color=plots.COLOURS[index], linewidth=0.9)
        pieces = int(np.asarray(one["linear"])[0])
        what = f"noise {name}" if index else f"{setting.depths[-1]} layers of 2 neurons"
        axes.set_title(f"{what}: {pieces} pieces", fontsize=9)
        axes.set_xlim(0, 1)
        axes.tick_params(labelbottom=index == 2)
    panels[names[2]].set_xlabel("input")
    panels[names[1]].set_ylabel("output")
    rows = table(setting, results)[len(setting.depths) :]
    axes, total = panels["count"], 2 ** setting.depths[-1]
    axes.axhline(total, color=plots.BOUND, linestyle="--", label=f"without noise: {total}")
    axes.axhline(2 * setting.depths[-1] + 1, color=plots.BOUND, linestyle=":", label="neurons + 1")
    x, y, error = ([row[name] for row in rows] for name in ("noise", "pieces", "pieces_error"))
    plots.points(axes, x, y, error, 0, f"mean of {setting.networks} networks", linestyle="-", linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylabel="linear pieces on [0, 1]",
             xlabel="standard deviation of the noise on weights and biases")  # fmt: skip
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if min(y) / 2 < tick < 2 * max(y)]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(loc="lower left")
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"Telgarsky's construction, Gaussian noise on every weight and bias; {setting.networks} networks for each; "
        "bars: two standard errors"
    )
