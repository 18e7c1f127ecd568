"""Raghu Figures 8, 9 and 18 (section 3.2): trajectory length and weight scale of each layer through training."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu import trained_nets
from epoch0.papers.raghu.conv_lengths import KEEPING
from epoch0.papers.raghu.trained_nets import PLAIN, Measured, Setting, accurate, conv_nets, dense_nets, gather
from epoch0.papers.raghu.trained_pictures import plain_log, through_layers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def length_table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row for each kind of network, step and layer: length, its growth, accuracy at that step."""
    rows = []
    for found in gather(setting, results):
        length, length_error = mean_and_error(found.lengths)
        growth, growth_error = mean_and_error(growths(found))
        accuracy, _ = mean_and_error(found.accuracy)
        rows += [
            {
                "networks": found.name, "runs": found.runs, "step": int(step), "accuracy": accuracy[s], "layer": layer,
                "kind": kind, "length": length[s, place + 1], "length_error": length_error[s, place + 1],
                "growth": growth[s, place], "growth_error": growth_error[s, place],
            }
            for s, step in enumerate(found.steps)
            for place, (layer, kind) in enumerate(zip(_names(found.layers), found.kinds, strict=True))
        ]  # fmt: skip
    return rows


def scale_table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """Figure 9: one row for each step and layer with weights."""
    rows = []
    for found in gather(setting, results):
        mean, error = mean_and_error(found.scale)
        rows += [
            {"networks": found.name, "runs": found.runs, "step": int(step), "layer": layer, "scale": mean[s, place],
             "scale_error": error[s, place]}
            for s, step in enumerate(found.steps) for place, layer in enumerate(found.weighted)
        ]  # fmt: skip
    return rows


def growths(found: Measured) -> Array:
    """Length after a layer over that before it, shape (runs, steps, layers)."""
    return np.asarray(found.lengths[..., 1:] / found.lengths[..., :-1])


def conv_claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 8."""
    (found,) = gather(setting, results)
    keeping = [found.layers.index(name) for name in KEEPING]
    growth = growths(found)
    before = mean_and_error(growth[:, 0, keeping].mean(1))
    after, after_error = mean_and_error(growth[:, -1, keeping])
    return [
        *accurate(setting, [found]),
        at_most("at step 0 length does not grow: mean over the layers that keep the number of neurons", [before[0]],
                [before[1]], 1.0, found.runs, ["growth"]),
        *_longer(found),
        at_least("after training length grows through every layer but pools and those with fewer neurons than before",
                 after, after_error, 1.0, found.runs, KEEPING),
    ]  # fmt: skip


def dense_claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 18."""
    every = gather(setting, results)
    decided = accurate(setting, every)
    for found in every:
        after, error = mean_and_error(growths(found)[:, -1, 1:-1])
        names = [f"layer {place}" for place in range(2, len(found.layers))]
        decided += _longer(found, f"{found.name}: ")
        decided.append(
            at_least(f"{found.name}: after training length grows through every hidden layer behind the first", after,
                     error, 1.0, found.runs, names)
        )  # fmt: skip
    return decided


def _longer(found: Measured, said: str = "") -> list[Claim]:
    """Training increases length, the more the deeper the layer."""
    gained = np.log(found.lengths[:, -1, 1:] / found.lengths[:, 0, 1:])
    mean, error = mean_and_error(gained)
    places = np.arange(gained.shape[1]) - (gained.shape[1] - 1) / 2
    slope, slope_error = mean_and_error(gained @ places / (places @ places))
    names = found.layers if found.layers[0] == "conv1" else [f"layer {i + 1}" for i in range(len(found.layers))]
    return [
        at_least(f"{said}training increases length after every layer: log of length at the end over that at step 0",
                 mean, error, 0.0, found.runs, names),
        at_least(f"{said}... by a factor that grows with depth: rise of that log a layer", [slope], [slope_error], 0.0,
                 found.runs, ["slope"]),
    ]  # fmt: skip


def scale_claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 9."""
    (found,) = gather(setting, results)
    mean, error = mean_and_error(np.log(found.scale[:, -1] / found.scale[:, 0]))
    return [
        *accurate(setting, [found]),
        at_least("training increases the weight scale of every layer: log of sigma_w^2 at the end over that at step 0",
                 mean, error, 0.0, found.runs, found.weighted),
    ]  # fmt: skip


def draw_lengths(setting: Setting, results: Results) -> "Figure":
    """Length against layer on a log scale, one line a step; a panel for each kind of network."""
    every = gather(setting, results)
    picture, row = plots.figure(4.9 * len(every) + 1.5, 4.4, 1, len(every), squeeze=False, sharey=True)
    for axes, found in zip(row[0], every, strict=True):
        mean, error = mean_and_error(found.lengths[..., 1:])
        through_layers(axes, found.steps, mean, error, _names(found.layers), found.kinds)
        plain_log(axes)
        axes.set_title(found.name)
    row[0][0].set_ylabel("length of the arc after the layer")
    row[0][-1].legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def draw_scale(setting: Setting, results: Results) -> "Figure":
    """Figure 9: weight scale against layer, one line a step."""
    (found,) = gather(setting, results)
    picture, axes = plots.figure(6.4, 4.2)
    mean, error = mean_and_error(found.scale)
    through_layers(axes, found.steps, mean, error, _names(found.weighted), ["linear"] * len(found.weighted))
    axes.set_ylabel(r"weight scale $\sigma_w^2$ of the layer")
    axes.legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def _names(layers: tuple[str, ...]) -> list[str]:
    """Names for an axis; layers without a name of their own are counted."""
    return [str(place) if name.isdigit() else name for place, name in enumerate(layers, start=1)]


def about(more: str, setting: Setting) -> str:
    """The setting in one line."""
    return f"{trained_nets.about(setting)}{more}; bars: two standard errors"


def _arcs(setting: Setting) -> str:
    return about(f", {setting.spec.arcs} arcs between test images in each; grey: pooling layers", setting)


def _dense(setting: Setting) -> str:
    return about(f" of each sigma_w^2, {setting.spec.arcs} arcs between test images in each", setting)


FIGURE_8 = OldArtifact(
    "raghu/fig8", "Trajectory length of each layer through training", "Raghu et al., Figure 8, section 3.2",
    conv_nets(PLAIN), trained_nets.trials, length_table, conv_claims, draw_lengths, trained_nets.data, _arcs,
    trained_nets.costs,
)  # fmt: skip
FIGURE_9 = OldArtifact(
    "raghu/fig9", "Weight scale of each layer through training", "Raghu et al., Figure 9, section 3.2",
    conv_nets(PLAIN), trained_nets.trials, scale_table, scale_claims, draw_scale, trained_nets.data,
    partial(about, "; scale: fan-in times the mean square of the weights"), trained_nets.costs,
)  # fmt: skip
FIGURE_18 = OldArtifact(
    "raghu/fig18", "Trajectory length through training, fully connected", "Raghu et al., Figure 18, section 3.2",
    dense_nets(1.0, 2.0), trained_nets.trials, length_table, dense_claims, draw_lengths, trained_nets.data, _dense,
    trained_nets.costs,
)  # fmt: skip
