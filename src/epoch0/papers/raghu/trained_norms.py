"""Raghu Figure 10 (section 3.2): what batch norm does to trajectory length through training.

An arc's length through a batch norm depends on whose statistics it uses. In evaluation they are the running ones, which
at step 0 are still mean 0 and variance 1, so that it does nothing. By the statistics of the arc's own points it divides
by how much a channel varies along the arc, which can be next to nothing. Both are measured and drawn.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu import trained_nets
from epoch0.papers.raghu.trained_nets import NORMED, PLAIN, Measured, Setting, accurate, conv_nets, gather
from epoch0.papers.raghu.trained_pictures import plain_log, through_layers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

MODES = ("running statistics, as in evaluation", "statistics of the arc's points")

SETTLED = 300
"""Where "after just a few hundred gradient steps" is taken to begin."""


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row for each statistics, step and layer of the networks with batch norm."""
    found, rows = _normed(setting, results), []
    for mode, lengths in _by_mode(found).items():
        length, length_error = mean_and_error(lengths)
        growth, growth_error = mean_and_error(lengths[..., 1:] / lengths[..., :-1])
        rows += [
            {
                "statistics": mode, "runs": found.runs, "step": int(step), "layer": layer, "kind": kind,
                "length": length[s, place + 1], "length_error": length_error[s, place + 1],
                "growth": growth[s, place], "growth_error": growth_error[s, place],
            }
            for s, step in enumerate(found.steps)
            for place, (layer, kind) in enumerate(zip(found.layers, found.kinds, strict=True))
        ]  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 10 and what section 3.2 says of it."""
    plain, found = gather(setting, results)
    late = np.flatnonzero(found.steps >= min(SETTLED, found.steps[-1]))
    decided = accurate(setting, [found])
    for mode, lengths in _by_mode(found).items():
        for what in ("convolution", "linear"):
            norms = _behind(found, what)
            growth = lengths[..., 1:][..., norms] / lengths[..., :-1][..., norms]
            behind = "convolutions" if what == "convolution" else "fully connected layers"
            mean, error = mean_and_error(growth[:, late].reshape(len(growth), -1))
            names = [f"{found.layers[n]}, step {int(found.steps[s])}" for s in late for n in norms]
            text = f"{mode}: from step {SETTLED} on batch norms behind {behind} reduce length: their growth"
            claim = at_most(text, mean, error, 1.0, found.runs, names)
            last = growth[:, -1].mean(0)
            told = ", ".join(f"{found.layers[n]} {value:.3g}" for n, value in zip(norms, last, strict=True))
            decided.append(replace(claim, evidence=f"{claim.evidence}; at the end {told}"))
            if lengths is found.lengths_batch:
                first, first_error = mean_and_error(growth[:, 0])
                decided.append(
                    at_least(f"{mode}: at step 0 batch norms behind {behind} increase it, dividing by a small variance",
                             first, first_error, 1.0, found.runs, [found.layers[n] for n in norms])
                )  # fmt: skip
    gained = [np.log(each.lengths[:, -1, -1]) for each in (found, plain)]
    mean, error = zip(*(mean_and_error(each) for each in gained), strict=True)
    decided.append(
        at_most("after training length at the output is less than without batch norm: difference of the logs",
                [mean[0] - mean[1]], [float(np.hypot(*error))], 0.0, min(found.runs, plain.runs), ["difference"])
    )  # fmt: skip
    return decided


def _normed(setting: Setting, results: Results) -> Measured:
    return next(found for found in gather(setting, results) if found.name == NORMED)


def _by_mode(found: Measured) -> dict[str, Array]:
    return dict(zip(MODES, (found.lengths, found.lengths_batch), strict=True))


def _behind(found: Measured, kind: str) -> list[int]:
    """Places of the batch norms behind layers of that kind."""
    pairs = zip(found.kinds, found.kinds[1:], strict=False)
    return [place + 1 for place, (before, own) in enumerate(pairs) if own == "batch norm" and before == kind]


def draw(setting: Setting, results: Results) -> "Figure":
    """Length against layer, one line a step, for both statistics."""
    found = _normed(setting, results)
    picture, rows = plots.figure(8.6, 7.6, 2, 1, sharex=True)
    for axes, (mode, lengths) in zip(rows, _by_mode(found).items(), strict=True):
        mean, error = mean_and_error(lengths[..., 1:])
        through_layers(axes, found.steps, mean, error, found.layers, found.kinds)
        plain_log(axes)
        axes.set(title=f"batch norm by {mode}", ylabel="length of the arc after the layer")
    rows[0].set_xlabel("")
    rows[0].legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"{trained_nets.about(setting)}, {setting.spec.arcs} arcs between test images in each; dotted: into batch "
        "norm; grey: pooling layers; bars: two standard errors"
    )


ARTIFACTS = (
    OldArtifact(
        "raghu/fig10", "Trajectory length through training with batch norm", "Raghu et al., Figure 10, section 3.2",
        conv_nets(PLAIN, NORMED), trained_nets.trials, table, claims, draw, trained_nets.data, about,
        trained_nets.costs,
    ),
)  # fmt: skip
