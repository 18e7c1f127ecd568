"""Trajectory length: tangents against the papers' 10,000 chords, one whole figure, many small networks at once."""

import numpy as np
import torch
from clock import cpu_seconds

from epoch0.curves import Line
from epoch0.distributions import Gaussian, Sparse
from epoch0.experiments.experiment import resolve
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers.catalogue import find
from epoch0.papers.trials import CurveSpec
from epoch0.seeds import generator

DENSITY, STD, BIAS, WIDTH, DEPTH, CHORDS = 0.5, 2.0, 0.01, 784, 10, 10_000


def _line(width: int) -> Line:
    ends = torch.randn(2, width, generator=generator(0))
    return Line(*(ends / ends.norm(dim=1, keepdim=True)))


def tangents_against_chords(networks: int = 100) -> dict[str, float]:
    """One setting of Figure 3, sparse Gaussian, in float32, sampling included on both sides.

    The plain side draws every weight and every mask with torch and sends 10,001 points through; both sides measure the
    same networks, so the standard errors differ by what the sampling of t adds and not by chance.
    """
    line = _line(WIDTH)
    law = Sparse(Gaussian(STD), DENSITY)
    nets = ensemble(networks, [WIDTH] * (DEPTH + 1), weights=law, biases=Gaussian(BIAS), linear_output=False, seed=0)
    found = trajectory_length(nets, line)
    ours = cpu_seconds(lambda: trajectory_length(nets, line)) / networks

    points = line.point(torch.linspace(0, 1, CHORDS + 1))
    source, plain = generator(1), 0.0
    state = nets.stacked(0, 1)
    lengths = np.empty((networks, DEPTH + 1))

    def draw() -> None:
        for layer in range(DEPTH):
            weight = torch.randn(WIDTH, WIDTH, generator=source).mul_(STD / WIDTH**0.5)
            weight *= torch.rand(WIDTH, WIDTH, generator=source) < DENSITY
            state[f"{2 * layer}.weight"][0], state[f"{2 * layer}.bias"][0] = weight, 0.0

    def chords(network: int) -> None:
        z = points
        for layer in range(DEPTH + 1):
            if layer:
                z = torch.relu(z @ state[f"{2 * layer - 2}.weight"][0].T + state[f"{2 * layer - 2}.bias"][0])
            lengths[network, layer] = (z[1:] - z[:-1]).norm(dim=1).sum()

    with torch.no_grad():
        for network in range(networks):
            plain += cpu_seconds(draw)
            nets.stacked(network, network + 1, out=state)  # not counted: the networks of the other side
            plain += cpu_seconds(lambda network=network: chords(network))
    plain /= networks
    ratios = [one[:, 1:] / one[:, :-1] for one in (found.network_lengths, lengths)]
    errors = [float((one.std(axis=0, ddof=1) / networks**0.5).mean()) for one in ratios]
    return {
        "tangents_seconds": ours, "chords_seconds": plain, "ratio": plain / ours,
        "tangents_error": errors[0], "chords_error": errors[1],
        "mean_difference": float(ratios[0].mean() - ratios[1].mean()),
    }  # fmt: skip


def figure_of_one_law() -> dict[str, float]:
    """Figure 3b in its paper preset, Gaussian law, 10 densities of 100 networks each, between two random points.

    The images at the ends do not change the cost, so none are needed.
    """
    paper = find("price-tanner/fig3b").setting("paper")
    trials = paper.but(law=("gaussian",), curve={"line": CurveSpec("random", size=WIDTH)}).trials()
    seconds = cpu_seconds(lambda: [resolve(trial.function)(trial.spec, trial.seed) for trial in trials])
    networks = sum(trial.spec.networks for trial in trials)
    return {"seconds": seconds, "networks": float(networks)}


def together_against_one_by_one(networks: int = 1000) -> dict[str, float]:
    """Networks of width 32 and depth 10 in one call; in a loop of calls; and in a bare loop of torch for just this.

    All with 16 tangents a network, sampling included. The bare loop knows that the networks are dense ReLU networks,
    checks nothing and keeps the sum of the norms only: it is what a batch can save at most by being a batch.
    """
    nets = ensemble(networks, [32] * 11, weights=Gaussian(STD), biases=Gaussian(BIAS), linear_output=False, seed=0)
    line, sums = _line(32), torch.zeros(11, dtype=torch.float64)

    def bare() -> None:
        for net in nets:
            t = (torch.arange(16) + torch.rand(1)) / 16
            z, dz = line.point(t), line.tangent(t)
            sums[0] += dz.norm(dim=1).sum()
            for layer, part in enumerate(net[::2], 1):
                both = torch.cat([z, dz]) @ part.weight.T
                z, dz = both[:16] + part.bias, both[16:]
                dz = dz * (z > 0)
                z = z.relu()
                sums[layer] += dz.norm(dim=1).sum()

    together = cpu_seconds(lambda: trajectory_length(nets, line, points=16), 3)
    apart = cpu_seconds(lambda: [trajectory_length(net, line, points=16) for net in nets])
    with torch.no_grad():
        hand = cpu_seconds(bare, 3)
    return {
        "together_seconds": together, "one_by_one_seconds": apart, "ratio": apart / together,
        "bare_loop_seconds": hand, "ratio_to_bare_loop": hand / together,
    }  # fmt: skip


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    a = tangents_against_chords()
    print(
        f"one setting of Figure 3, a network of width 784 and depth 10: {a['ratio']:.1f} times less than 10,000 chords "
        f"({a['tangents_seconds']:.3f} s against {a['chords_seconds']:.2f} s, sampling included); standard error of "
        f"the growth over 100 networks {a['tangents_error']:.5f} against {a['chords_error']:.5f} "
        f"({a['tangents_error'] / a['chords_error']:.3f} times), "
        f"means apart by {a['mean_difference']:+.5f}"
    )
    b = figure_of_one_law()
    print(f"Figure 3b, paper preset, one law, {b['networks']:.0f} networks: {b['seconds']:.1f} CPU s (at most 120)")
    c = together_against_one_by_one()
    print(
        f"1,000 networks of width 32, depth 10: {c['ratio']:.1f} times less than one by one "
        f"({c['together_seconds']:.2f} s against {c['one_by_one_seconds']:.2f} s), {c['ratio_to_bare_loop']:.1f} times "
        f"less than a bare loop of torch written for them ({c['bare_loop_seconds']:.2f} s)"
    )


if __name__ == "__main__":
    main()
