"""Hayou Figures 3 and 5: which pruned networks train, over depth and sparsity, for three initializations (4.1, G)."""

import math
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.experiments.claims import at_least, at_most, exact
from epoch0.experiments.cost import Cost
from epoch0.networks import mlp
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, given
from epoch0.papers.tables import Array, Claims, Decision, Table, by, more, over_runs
from epoch0.papers.trials import EXTENTS, checkpoint_of, fit, images, tensors
from epoch0.prune import apply, keep, random, snip
from epoch0.prune.effects.rescale import rescaled as rescale
from epoch0.train import Accuracy, Stacked, chosen_device

# edge of chaos with rescaling, edge of chaos, ordered phase: the panels of the figures, in their order
INITS = ("rescaled", "edge", "ordered")
NAMES = {"rescaled": "EOC + rescaling", "edge": "EOC", "ordered": "ordered phase"}
WAYS = {"row": "rescaling by row (Algorithm 1)", "measured": "measured rescaling (beyond the paper)"}  # not by layer
MARGIN = 0.1  # a network is trainable if its test accuracy is that much above the share of the most frequent class
DEEP, SPARSE = 60, 0.4  # above both the paper calls the ordered phase untrainable
# Not in the paper: sigma_b of the point on the edge of chaos (sigma_w = 1 for tanh and ELU); sigma_w, sigma_b in the
# ordered phase, where chi is 0.70 for tanh and 0.74 for ELU. With sigma_b = 0 no layer would be pruned there.
EDGE, ORDERED = (1.0, 0.0), (1.0, 0.3)  # sigma_w, sigma_b; the edge of tanh and of ELU without biases
ONE_MORE = 0.5  # more cells train if the difference is nearer to one than to none


def trained(spec: Spec, seed: int) -> dict[str, Any]:
    """Prune by SNIP, rescale, train by plain SGD and test every network of one depth; all see the same batches.
    ``depth`` is that of weight layers with the last one; ``edge`` and ``ordered`` are sigma_w and sigma_b. The network
    on the edge of chaos and its rescaled twin have the same weights and masks. Scores are in float64. Arrays are
    (initializations, sparsities), only those of ``inits`` if the spec has it; ``dead`` counts layers that keep
    nothing.
    """
    (x, y), (held, labels) = tensors(spec.data), (each[: spec.tested] for each in tensors(spec.data, "test"))
    pixels, classes = x.shape[1], EXTENTS[spec.data][1]
    nets, dead = [], []
    batch = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    for init in inits_of(spec):
        scores = snip(network(spec, init, seed, pixels, classes).double(), [batch])
        for masks in (keep(scores, sparsity) for sparsity in spec.sparsities):
            nets.append(apply(network(spec, init, seed, pixels, classes), masks))
            dead.append(len(masks.dead))
            if init == "rescaled":
                with suppress(InputError):  # a layer without weights has no scale
                    rescale(nets[-1], spec.rescaling, x=batch[0].float())
    stack = Stacked.of(nets)
    settings = {"loss": stack.loss(nn.functional.cross_entropy), "seed": seed, "device": chosen_device()}
    seen = {"evaluate": Accuracy(held, labels), "evaluate_every": spec.steps, "checkpoint_minutes": 2.0}
    with checkpoint_of(spec, seed) as path:
        done = fit(spec, stack, (x, y), steps=spec.steps, checkpoint=path, **seen, **settings)
    found = {"accuracy": done.history[-1]["accuracy"], "dead": dead, "diverged": stack.diverged.cpu().numpy()}
    arrays = {name: np.array(values).reshape(-1, len(spec.sparsities)) for name, values in found.items()}
    return {**arrays, "chance": float(np.bincount(labels.numpy()).max() / len(labels))}


def inits_of(spec: Spec) -> tuple[str, ...]:
    """The initializations of a trial: the first is always the rescaled one."""
    return tuple(vars(spec).get("inits", INITS))


def network(spec: Spec, init: str, seed: int, inputs: int, classes: int) -> nn.Sequential:
    weight_std, bias_std = spec.ordered if init == "ordered" else spec.edge
    sizes, biases = [inputs, *[spec.width] * (spec.depth - 1), classes], Gaussian(bias_std) if bias_std > 0 else None
    return mlp(sizes, spec.activation, weights=Gaussian(weight_std), biases=biases, seed=seed)


def cost(spec: Spec) -> Cost:
    shape, classes, *_ = EXTENTS[spec.data]
    inputs, each = math.prod(shape), [(init, sparsity) for init in inits_of(spec) for sparsity in spec.sparsities]

    def untrained() -> Stacked:
        nets = [network(spec, init, 0, inputs, classes) for init, _ in each]
        return Stacked.of(nets, [keep(random(net), sparsity) for net, (_, sparsity) in zip(nets, each, strict=True)])

    name = f"{spec.activation} depth {spec.depth}, {spec.data}, {len(each)} networks as one"
    return Cost(name, (), untrained, (inputs,), classes, spec.batch_size, spec.steps * spec.batch_size, spec.tested)


def threshold(cell: Cell) -> float:
    """Accuracy from which on a network counts as trainable."""
    return float(cell.results[0]["chance"]) + MARGIN


def table(init: str, found: Found) -> Table:
    """One row a depth and sparsity, of all three initializations and ways to rescale; those of this panel first."""

    def columns(own: list[str], cell: Cell) -> Any:
        found = {"accuracy": cell["accuracy"], "trainable": cell["accuracy"] >= threshold(cell)}
        found |= {"dead_layers": cell["dead"], "diverged": cell["diverged"]}
        return found, {}, {"initialization": own, "sparsity": cell.spec.sparsities}

    names = [*NAMES.values(), *WAYS.values()]
    each = {found: names[: len(NAMES)], **{item: [WAYS[way]] for way, item in found.also.items()}}
    rows = [row for item, own in each.items() for row in item.rows(partial(columns, own))]
    names.sort(key=lambda name: name != NAMES[init])
    return Table(sorted(rows, key=lambda row: (names.index(row["initialization"]), row["depth"])))


def runs_of(found: Found, name: str, init: str) -> Array:
    """Of the networks with that start, (runs, depths, sparsities); depths rise."""
    return np.moveaxis(found[name][:, :, INITS.index(init)][::-1], 0, 1)


def _grid(found: Found) -> tuple[Array, Array]:
    depth, sparsity = np.meshgrid(sorted(found.sweep["depth"]), found.sweep["sparsities"], indexing="ij")
    return depth.astype(float), sparsity


def claims(init: str, found: Found) -> Claims:
    """What section 4.1 says of that panel, and how it compares with the one before."""
    own = _rescaled(found, "rescaling") if init == "rescaled" else _untrained(init, found)
    # the first of a pair is said to train where the second does, and in more cells
    pairs = [pair for pair in (INITS[1:], INITS[:2]) if init in pair]
    return {**own, **dict(_more(found, *pair) for pair in pairs)}


def _rescaled(found: Found, way: str) -> Claims:
    """Deep networks train with rescaling; by layer, and in the other ways, whose networks are fewer."""
    depth, sparsity = _grid(found)
    deep, limit = depth >= DEEP, threshold(found.cells[0])
    # of each run the mean over some cells: what they have in common shows with fewer runs than each by itself
    each = runs_of(found, "accuracy", INITS[0])
    low, high = (each[:, deep & part].mean(1) for part in (sparsity <= 0.5, sparsity > 0.5))
    up_to = f"with {way} networks of depth {DEEP} and more train up to 50 % sparsity, on average"
    above = "... and above 50 %" + f" ({way})" * (way in WAYS.values())
    decided = {text: over_runs(at_least, item, limit, names=["mean"]) for text, item in ((up_to, low), (above, high))}
    if len(inits_of(found.sweep.spec)) > 1:
        both, plain = deep & (sparsity >= 0.5), runs_of(found, "accuracy", INITS[1])
        gain = each[:, both].mean(1) - plain[:, both].mean(1)
        adds = f"rescaling adds {100 * MARGIN:g} % and more from depth {DEEP} and 50 % sparsity on: mean over the cells"
        decided[adds] = over_runs(at_least, gain, MARGIN, names=["difference"])
    for other, entry in found.also.items():
        decided |= _rescaled(entry, WAYS[other])
    return decided


def _untrained(init: str, found: Found) -> Claims:
    depth, sparsity = _grid(found)
    cells = (depth > DEEP) & (sparsity > SPARSE)
    text = f"in the ordered phase nothing trains above {100 * SPARSE:g} % sparsity and depth {DEEP}"
    if init == "edge":
        cells = (depth >= DEEP) & (sparsity >= 0.5)
        text = f"without rescaling nothing trains on the edge of chaos from depth {DEEP} and 50 % sparsity on"
    names = [f"depth {d:g}, {100 * s:g} %" for d, s in zip(depth[cells], sparsity[cells], strict=True)]
    accuracy, dead = (runs_of(found, name, init)[:, cells] for name in ("accuracy", "dead"))
    decided = {text: over_runs(at_most, accuracy, threshold(found.cells[0]), names=names)}
    if init == "ordered":
        detail = f"in {(dead > 0).sum():g} of {dead.size} networks; {dead.mean():.3g} layers on average"
        numbers = {"share": float((dead > 0).mean()), "mean": float(dead.mean())}
        decided["... as at least one layer is fully pruned"] = by(exact, bool((dead > 0).all()), detail, numbers)
    return decided


def _more(found: Found, larger: str, smaller: str) -> tuple[str, Decision]:
    first, second = (runs_of(found, "accuracy", init) >= threshold(found.cells[0]) for init in (larger, smaller))
    counts = [trains.sum((1, 2)).astype(float) for trains in (first, second)]
    lost = (second.mean(0) >= 0.5) & (first.mean(0) < 0.5)
    cells = np.stack(_grid(found), -1)[lost]
    where = ", ".join(f"depth {depth:g} at {100 * sparsity:g} %" for depth, sparsity in cells)
    both = f"{counts[0].mean():.3g} against {counts[1].mean():.3g}"
    extra = f"trained only by {NAMES[smaller]}: {where}" if where else f"and wherever {NAMES[smaller]} does"
    text = f"{NAMES[larger]} trains in more cells than {NAMES[smaller]}, of {lost.size}"
    return text, more(over_runs(at_least, counts[0] - counts[1], ONE_MORE, names=["difference"]), both, extra)


def draw(init: str, found: Found) -> plots.Figure:
    """One panel, 0 to 100 %, other ways to rescale above; crosses where less than half train; dead layers as counts."""
    from matplotlib.lines import Line2D

    sparsities, limit = found.sweep["sparsities"], threshold(found.cells[0])
    shown = {"": found, **({f", {way}": item for way, item in found.also.items()} if init == "rescaled" else {})}
    depths = [f"{depth:g}{way}" for way, item in shown.items() for depth in sorted(item.sweep["depth"])]
    each = [[runs_of(item, name, init) for item in shown.values()] for name in ("accuracy", "dead")]
    accuracy, dead = (np.concatenate([item.mean(0) for item in ones]) for ones in each)
    trainable = np.concatenate([(item >= limit).mean(0) for item in each[0]])
    picture, axes = plots.figure(max(6.2, 1.9 + 0.62 * len(sparsities)), 1.3 + 0.5 * len(depths))
    image = axes.imshow(100 * accuracy, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=100)
    axes.grid(visible=False)
    axes.set_xticks(range(len(sparsities)), [f"{100 * s:g}" for s in sparsities])
    axes.set_yticks(range(len(depths)), depths)
    axes.set(xlabel="weights pruned (%)", ylabel="depth; rescaled by layer" if len(shown) > 1 else "depth")
    for (i, j), mean in np.ndenumerate(accuracy):
        colour = "black" if mean > 0.55 else "white"  # black on light, white on dark
        middle = {"ha": "center", "va": "center", "color": colour}
        axes.text(j, i + 0.12, f"{100 * mean:.0f}", fontsize=9, **middle)
        if dead[i, j] > 0:
            axes.text(j, i - 0.25, f"{dead[i, j]:.2g} dead", fontsize=6.5, **middle)
        if trainable[i, j] < 0.5:
            axes.plot(j + 0.36, i + 0.32, marker="x", color=colour, markersize=4.5, markeredgewidth=1.2)
    bar = picture.colorbar(image, ax=axes, pad=0.02, label="test accuracy (%)")
    bar.ax.axhline(100 * (limit - MARGIN), color="white", linewidth=1.2)
    cross: dict[str, Any] = {"marker": "x", "color": "black", "label": "does not train"}
    looks = [cross] * bool((trainable < 0.5).any()) + [{"label": "white line on the scale: chance"}]
    looks += [{"label": "dead: layers that keep nothing"}] * bool((dead > 0).any())
    handles = [Line2D([], [], linestyle="none", **look) for look in looks]
    plots.legend_below(picture, handles=handles, loc="outside lower left", handletextpad=0.2, frameon=False, columns=3)
    return picture


def presets(activation: str) -> dict[str, Sweep]:
    """The paper does not say which point of the edge of chaos, nor which ordered one; see docs/hayou-accuracy."""
    sparsities = tuple(s / 10 for s in range(1, 10))
    long: dict[str, Any] = {"steps": 10_000, "batch_size": 100, "learning_rate": 1e-3, "tested": 10_000}
    scales = {"activation": activation, "width": 100, "edge": EDGE, "ordered": ORDERED}
    spec = Spec(data="mnist", sparsities=sparsities, examples=100, rescaling="layer", **scales, **long)
    paper = Sweep(trained, spec, {"depth": (100, 80, 60, 40, 20, 2)}, runs=3)  # those that take longest first
    others = {way: paper.but(spec=spec.but(rescaling=way, inits=INITS[:1])) for way in WAYS}
    less: dict[str, Any] = {"steps": 400, "batch_size": 64, "learning_rate": 0.004, "tested": 360}
    less |= {"sparsities": (0.1, 0.5, 0.9), "data": "digits", "seed": 100}
    few = {way: item.but(depth=(60,), **less) for way, item in others.items()}
    return paper.but(also=others).presets(depth=(80, 60, 20, 2), runs=5, also=few, **less)


_ABOUT = "{{activation}}, sigma_w, sigma_b = {{{}}}; {{width}} units, depth {{depth}}; SNIP on {{examples}} images of "
_ABOUT += "{{data}}; {{steps}} steps of SGD at {{learning_rate:g}}, batches of {{batch_size}}; means of {{runs}} runs, "
_ABOUT += f"no bars; trainable: {100 * MARGIN:g} % above chance"
_OTHERS = "; rescaling: {rescaling}, or as a row says (3 runs)"
_TITLES = {"rescaled": "edge of chaos with rescaling", "edge": "edge of chaos", "ordered": "ordered phase"}
_FIGURES = (("3a 3b 3c", presets("tanh")), ("5a 5b 5c", presets("elu")), ("5d 5e 5f", presets("tanh")))


def _figure(name: str, init: str, both: dict[str, Sweep]) -> Artifact:
    about = _ABOUT.format("ordered" if init == "ordered" else "edge") + _OTHERS * (init == INITS[0])
    args = "section 4.1", both, *given(init, table, claims, draw), about, cost
    return Artifact(f"hayou/fig{name}", f"Accuracy over depth and sparsity: {_TITLES[init]}", *args)


ARTIFACTS = tuple(_figure(id, of, both) for ids, both in _FIGURES for id, of in zip(ids.split(), INITS, strict=True))
