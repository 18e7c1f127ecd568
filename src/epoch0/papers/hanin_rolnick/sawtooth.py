"""Hanin-Rolnick Figure 3: Telgarsky's sawtooth, and what is left of its pieces when weights and biases are disturbed.

The paper does not print its noise: here Gaussian noise of one standard deviation is added to every weight and bias. The
weights of the sawtooth are 2 and 4 in size, its biases 1.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots, regions
from epoch0.experiments.claims import at_most, check, increasing
from epoch0.networks.constructions import sawtooth
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Decision, Mean, Table, by, mean_and_error
from epoch0.seeds import generator

# standard deviations after which "most" pieces should be gone, and that are drawn: a twentieth of the smallest weight,
# and a variance of about 0.1
NOISES = (0.1, 0.3)
MOST = 0.5  # noise destroys most of the pieces if it leaves at most this share of them


def pieces(spec: Spec, seed: int) -> dict[str, Any]:
    """``linear`` and activation regions (``count``) on [0, 1], (networks,); ``knots`` and ``values`` of the first."""
    torch.set_num_threads(1)
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    nets = [disturbed(spec, seed, network) for network in range(spec.networks)]
    found: list[Any] = [regions.on_line(net, *ends) for net in nets]
    linear, count = np.array([[float(one.linear_count), float(one.count)] for one in found]).T
    knots = np.concatenate([[0.0], found[0].breakpoints, [1.0]])
    with torch.no_grad():
        values = nets[0](torch.from_numpy(knots)[:, None])[:, 0].numpy()
    return {"linear": linear, "count": count, "knots": knots, "values": values}


def disturbed(spec: Spec, seed: int, network: int) -> nn.Module:
    """The sawtooth in float64 with noise on every weight and bias; the same draw for every size of the noise."""
    net = sawtooth(spec.depth, dtype=torch.float64)
    source = generator(seed, network)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(spec.noise * torch.randn(parameter.shape, generator=source, dtype=torch.float64))
    return net


def table(found: Found) -> Table:
    """One row a depth without noise, and one a noise."""

    def measured(cell: Cell) -> dict[str, Any]:
        means = {"pieces": mean_and_error(cell["linear"][0]), "activation_regions": mean_and_error(cell["count"][0])}
        exact = cell.spec.networks == 1
        return {name: Mean(mean, 0.0) if exact else Mean(mean, error) for name, (mean, error) in means.items()}

    def beside(cell: Cell) -> dict[str, Any]:
        depth, noise, count = cell.spec.depth, cell.spec.noise, cell.spec.networks
        told = {"depth": depth, "noise": noise, "runs": count, "neurons": 2 * depth, "without_noise": 2**depth}
        return {**told, "most_pieces": int(cell["linear"].max())}

    return Table([*found.rows(measured, beside), *found.also["noisy"].rows(measured, beside)])


def claims(found: Found) -> Claims:
    """2^n pieces exactly, from 2n neurons; noise destroys most of them, the more the larger it is."""
    whole, noisy = found.table.where(noise=0.0), found.table.where(noise=found.also["noisy"].sweep["noise"])
    wrong = [row["depth"] for row in whole if row["pieces"] != row["without_noise"]]
    mean, error, noise, count = noisy.of("pieces", "pieces_error", "noise", "runs")
    total = whole[-1]["without_noise"]
    lost = [0.0, *(total - mean)], [0.0, *error], count[0], ["no noise", *noisy.told("noise {noise:g}")]
    told = f"{', '.join(whole.told('{pieces:g}'))} pieces from {', '.join(whole.told('{neurons}'))} neurons"
    decided: dict[str, Decision] = {
        "without noise there are exactly 2^n linear pieces, 2^(n-1) teeth, from n layers of two neurons": by(
            check, not wrong, told, {"wrong": len(wrong)}
        )
    }
    for size in NOISES:
        share, spread = mean[noise == size] / total, error[noise == size] / total
        text = f"noise of standard deviation {size:g} leaves at most half of the pieces"
        decided[text] = by(at_most, share, spread, MOST, count[0], [f"noise {size:g}"])
    return {**decided, "the larger the noise the more pieces are lost": by(increasing, *lost)}


def draw(found: Found) -> plots.Figure:
    """The sawtooth, two disturbed ones, and the number of pieces against the noise."""
    noisy, whole = found.also["noisy"], found.cells[-1]
    cells = {"0": whole, **{f"{noise:g}": noisy.one(noise=noise) for noise in NOISES}}
    picture, panels = plots.figure(11.0, 4.6, mosaic=[[name, "count"] for name in cells], width_ratios=[1.5, 1.0])
    for index, (name, cell) in enumerate(cells.items()):
        axes = panels[name]
        axes.plot(cell["knots"][0], cell["values"][0], color=plots.COLOURS[index], linewidth=0.9)
        what = f"noise {name}" if index else f"{whole.spec.depth} layers of 2 neurons"
        axes.set_title(f"{what}: {int(cell['linear'][0, 0])} pieces", fontsize=9)
        axes.set_xlim(0, 1)
        axes.tick_params(labelbottom=index == 2)
    panels[list(cells)[2]].set_xlabel("input")
    panels[list(cells)[1]].set_ylabel("output")
    rows, axes, total = found.table.where(noise=noisy.sweep["noise"]), panels["count"], 2**whole.spec.depth
    axes.axhline(total, color=plots.BOUND, linestyle="--", label=f"without noise: {total}")
    axes.axhline(2 * whole.spec.depth + 1, color=plots.BOUND, linestyle=":", label="neurons + 1")
    label = f"mean of {rows[0]['runs']} networks"
    plots.means(axes, rows, "noise", "pieces", 0, label, linestyle="-", linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylabel="linear pieces on [0, 1]")
    axes.set_xlabel("standard deviation of the noise on weights and biases")
    least, most = rows.column("pieces").min(), rows.column("pieces").max()
    plots.ticks(axes, [y for y in (1, 2, 5, 10, 20, 50, 100, 200, 500) if least / 2 < y < 2 * most], "y")
    axes.legend(loc="lower left")
    return picture


def sawtooths(depths: tuple[int, ...], networks: int) -> Sweep:
    """The sawtooths as they are; and the largest with noise of several sizes."""
    noises = {"noise": (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}
    noisy = Sweep(pieces, Spec(depth=depths[-1], networks=networks), noises, stride=1)
    return Sweep(pieces, Spec(noise=0.0, networks=1), {"depth": depths}, also={"noisy": noisy})


_ABOUT = (
    "Telgarsky's construction, Gaussian noise on every weight and bias; {noisy[networks]} networks for each; bars: two "
    "standard errors"
)
_TITLE = "A sawtooth of exponentially many pieces, and noise"
_PRESETS = {"quick": sawtooths((1, 2, 3, 4, 5, 6), 40), "paper": sawtooths((1, 2, 3, 4, 5, 6, 7, 8), 200)}
ARTIFACTS = (Artifact("hanin-rolnick/fig3", _TITLE, "", _PRESETS, table, claims, draw, _ABOUT),)
