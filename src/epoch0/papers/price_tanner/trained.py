"""Price-Tanner Figure 6 (appendix C.2): growth in trained networks, averaged over lines (6a) and line by line (6b).

docs/price-tanner lists our choices.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.curves import Line
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, Claim, at_least, equal_within_error, linear
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Decision, Mean, Table, agrees, by, mean_and_error, means, more
from epoch0.papers.trials import fit, tensors
from epoch0.seeds import numpy_generator
from epoch0.theory import growth as theory
from epoch0.train import Accuracy, FreezeAt, Stacked

WEIGHT_STDS = (1.0, 1.4, 1.8, 2.2, 2.6)  # the five initial sigma_w; with these nearly every network learns in time
KINDS = ("within a class", "between classes")
LINEAR_R2 = 0.95  # share of the variance that a line has to explain for "linear", or "exponential with depth"
RESOLUTION = 0.05  # lines agree if they differ by less than this, relatively
LEAST_SETTINGS = 3  # initial sigma_w with two networks above the accuracy that the claims about trained networks need
_WEIGHTS, _BATCHES = range(2)  # streams of a trial's seed


def train_and_measure(spec: Spec, seed: int) -> dict[str, Any]:
    """Train a stack of networks, until they exceed an accuracy, and carry every line through it, before and after.

    ``random_networks`` are measured before training, the first ``networks`` of them are trained. ``lines`` join images
    within a class, and as many again images of two; ``lines_seed`` is the same in every trial of a figure.

    ``reached`` and ``accuracy`` on the test set are (networks,), as are ``std_trained`` and ``std_random``, sigma_w of
    each; ``growth_...`` is (networks, lines); ``log_length_...``, the mean over the lines of the log of the length
    relative to the first hidden layer, (networks, hidden layers).
    """
    given, held = (tensors(spec.data, split, "norm") for split in ("train", "test"))
    ends = held[0][torch.from_numpy(line_pairs(held[1].numpy(), spec.lines, spec.lines_seed))]  # (lines, 2, pixels)
    weights_seed, batches_seed = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES))
    nets = ensemble(spec.random_networks, spec.sizes, weights=Gaussian(spec.weight_std), seed=weights_seed)
    before = _measured(Stacked.of(nets), ends, spec.points, seed)
    stack = Stacked.of([nets[index] for index in range(spec.networks)])
    seen = {"evaluate": Accuracy(*held), "callbacks": [FreezeAt("accuracy", spec.accuracy)], "seed": batches_seed}
    settings = {"optimizer": "adam", "loss": stack.loss(torch.nn.functional.cross_entropy), **seen}
    done = fit(spec, stack, given, epochs=spec.epochs, until=lambda row: bool(row["running"] == 0), **settings)
    stack.settle()
    after, at = _measured(stack, ends, spec.points, seed), stack.frozen_at.numpy()
    rows = {row["step"]: row for row in done.history if "accuracy" in row}
    accuracy = [rows[step if step >= 0 else done.history[-1]["step"]] for step in at.tolist()]
    accuracies = np.array([row["accuracy"][index] for index, row in enumerate(accuracy)])
    result: dict[str, Any] = {"reached": at >= 0, "accuracy": accuracies}
    for state, values in (("random", before), ("trained", after)):
        result |= {f"{name}_{state}": item for name, item in zip(("std", "growth", "log_length"), values, strict=True)}
    return result


def line_pairs(labels: Array, lines: int, seed: int) -> Array:
    """Which two examples each line joins: first ``lines`` pairs of one class, then ``lines`` of two classes."""
    source = numpy_generator(seed)
    pairs: list[tuple[int, int]] = []
    for same in (True, False):
        while len(pairs) < (lines if same else 2 * lines):
            first, second = source.integers(len(labels), size=2)
            if first != second and (labels[first] == labels[second]) == same:
                pairs.append((int(first), int(second)))
    return np.array(pairs, dtype=np.int64)


def weight_std(stack: Stacked) -> Array:
    """sigma_w of each network: root mean square over its square layers of sqrt(width) times the std of the weights."""
    square = [p.detach() for p in stack.networks.parameters() if p.dim() == 3 and p.shape[1] == p.shape[2]]
    return np.asarray(torch.stack([p.double().var(dim=(1, 2)) * p.shape[2] for p in square]).mean(0).sqrt().numpy())


def _measured(stack: Stacked, ends: torch.Tensor, points: int, seed: int) -> tuple[Array, Array, Array]:
    """sigma_w, growth factor along each line, log length at the hidden layers relative to the first."""
    networks = [stack.unstack(index).eval().requires_grad_(False) for index in range(len(stack))]
    growth, logs = [], []
    for line, (start, end) in enumerate(ends):
        found = trajectory_length(networks, Line(start, end), points=points, seed=seed + line)
        growth.append(found.network_growth[:, 1:].mean(-1))
        hidden = found.network_lengths[:, 1:]
        logs.append(np.log(np.maximum(hidden, np.finfo(float).tiny) / hidden[:, :1]))
    return weight_std(stack), np.stack(growth, 1), np.mean(logs, 0)


class TrainedNetworks:
    """The networks of one initial sigma_w: ``"random"``, all before training, and ``"trained"``, those that learned."""

    def __init__(self, cell: Cell) -> None:
        self.cell, (self.reached,) = cell, cell["reached"]
        self.name = f"initial sigma_w {cell.at['weight_std']:g}"
        self.learned = int(self.reached.sum())

    def of(self, name: str, state: str) -> Array:
        """``"std"`` (networks,), ``"growth"`` (networks, lines) or ``"log_length"`` (networks, hidden layers)."""
        values: Array = self.cell[f"{name}_{state}"][0]
        return values[self.reached] if state == "trained" else values

    def kind(self, state: str, kind: int) -> Array:
        """Growth factors along the lines of one kind (an index into KINDS), (networks, lines)."""
        return np.split(self.of("growth", state), 2, axis=1)[kind]

    def about(self, state: str) -> dict[str, Any]:
        """One row of the table: sigma_w and counts of these networks."""
        std, error = _mean(self.of("std", state))
        missed, accuracy = "", None
        if state == "trained":
            missed = ", ".join(map(str, np.flatnonzero(~self.reached)))
            accuracy = float(self.cell["accuracy"][0][self.reached].mean()) if self.learned else None
        fields = {"initial_std": self.cell.at["weight_std"], "weight_std": float(std), "weight_std_error": float(error)}
        return {**fields, "count": len(self.of("std", state)), "accuracy": accuracy, "missed": missed}


def _mean(values: Array) -> Mean:
    """Over the first axis; NaN where no network is left."""
    missing = np.full(values.shape[1:], np.nan)
    return mean_and_error(values) if len(values) else Mean(missing, missing)


def table_a(found: Found) -> Table:
    """One row an initial sigma_w, kind of line and state; errors of growth join those over networks and over lines."""
    rows = Table()
    for trained, state in product(map(TrainedNetworks, found), ("trained", "random")):
        about = trained.about(state)
        exact = {"exact_random": exact_random(found.sweep["sizes"], about["weight_std"])}
        for kind, name in enumerate(KINDS):
            growth = trained.kind(state, kind)
            mean, over_lines = mean_and_error(_mean(growth).mean)
            error = float(np.hypot(over_lines, _mean(growth.mean(1)).error))
            rows.append({"networks": state, "lines": name, **about, "growth": mean, "growth_error": error, **exact})
    return rows


def table_b(found: Found) -> Table:
    rows = Table()
    for trained, state in product(map(TrainedNetworks, found), ("trained", "random")):
        about, growth = trained.about(state), trained.of("growth", state)
        for line, each in enumerate(growth.T):
            mean, error = _mean(each)
            named = {"networks": state, "line": line, "lines": KINDS[2 * line // growth.shape[1]]}
            rows.append({**named, **about, "growth": float(mean), "growth_error": float(error)})
    return rows


def exact_random(sizes: Sequence[int], std: float) -> float:
    return float(theory.exact(Gaussian(std / sizes[1] ** 0.5), sizes[1])) if np.isfinite(std) else float("nan")


def claims_a(found: Found) -> Claims:
    if len(gathered := _enough(found)) < LEAST_SETTINGS:
        return {"what holds for random networks survives training": _too_few(found)}
    decided, each = {}, [trained.learned for trained in gathered]
    for trained in gathered:
        mean, error = mean_and_error(trained.of("log_length", "trained")[:, 1:])
        text = f"length in trained networks is exponential in depth, {trained.name}"
        decided[text] = by(linear, np.arange(2, len(mean) + 2), mean, error, trained.learned, least_r2=LINEAR_R2)
    stds = [trained.of("std", "trained").mean() for trained in gathered]
    for kind, name in enumerate(KINDS):
        growth = means(trained.kind("trained", kind).mean(1) for trained in gathered)
        text = f"growth in trained networks is linear in their sigma_w, lines {name}"
        decided[text] = by(linear, stds, *growth, each, least_r2=LINEAR_R2)
    within, between = (means(trained.kind("trained", kind).mean(0) for trained in gathered) for kind in (0, 1))
    wider, names = (between.mean - within.mean, np.hypot(within.error, between.error)), [item.name for item in gathered]
    text = "in trained networks lines between classes grow more than lines within a class"
    decided[text] = by(at_least, *wider, MORE, found.sweep["lines"], names)
    # section 4: the factor "is not the same size in random nets as it is in trained nets with the same sigma_w"
    text = "trained networks grow lines by another factor than random ones of equal sigma_w"
    mean, error = means(trained.of("growth", "trained").mean(1) for trained in gathered)
    exact = np.array([exact_random(found.sweep["sizes"], float(std)) for std in stds])
    values = mean, error, exact, each, names, RESOLUTION
    detail = f"trained over random: {', '.join(f'{ratio:.2f}' for ratio in mean / exact)}"
    return {**decided, text: more(by(agrees, *values, groups=("trained", "random, exact"), alike=False), detail)}


def _enough(found: Found) -> list[TrainedNetworks]:
    """Where two networks learned, so that there is a standard error."""
    return [trained for trained in map(TrainedNetworks, found) if trained.learned >= 2]


def claims_b(found: Found) -> Claims:
    enough, random = _enough(found), _lines_agree(list(map(TrainedNetworks, found)), "random")
    after = _lines_agree(enough, "trained", alike=False) if len(enough) >= LEAST_SETTINGS else _too_few(found)
    return {
        "the growth factor depends on the line in trained networks": after,
        "the growth factor does not depend on the line in random networks": random,
    }


def _lines_agree(gathered: Sequence[TrainedNetworks], state: str, alike: bool = True) -> Decision:
    """All lines have one growth factor, in every setting; or in none."""
    each = [trained.of("growth", state) for trained in gathered]
    # all lines pass through the same networks, so what a network adds to all of them is taken out first
    own = [mean_and_error(growth - growth.mean(1, keepdims=True) + growth.mean()) for growth in each]
    samples = [np.full(growth.shape[1], len(growth)) for growth in each]
    names, lines = [trained.name for trained in gathered], [f"line {line + 1}" for line in range(each[0].shape[1])]
    means, errors = [item.mean for item in own], [item.error for item in own]
    settings: dict[str, Any] = {"settings": names, "groups": lines, "alike": alike}
    return by(equal_within_error, means, errors, samples, resolution=RESOLUTION, **settings)


def _too_few(found: Found) -> Decision:
    target = f"{100 * found.sweep['accuracy']:g} %"
    evidence = f"fewer than {LEAST_SETTINGS} initial sigma_w have two networks above {target} test accuracy"
    return lambda text: Claim(text, "undecided", evidence)


BLACK = 6  # place of black among the colours; the random networks have it, as in the paper


@plots.drawn(7.0, 4.6, legend="best")
def draw_a(found: Found, axes: plots.Axes) -> None:
    rows = found.table
    for index, kind in enumerate(KINDS):
        _points(axes, rows.where(networks="trained", lines=kind), index, f"trained, lines {kind}", linestyle="-")
    _points(axes, rows.where(networks="random", lines=KINDS[0]), BLACK, "random, before training")
    x = np.linspace(np.nanmin(rows.column("weight_std")), np.nanmax(rows.column("weight_std")), 50)
    exact = [exact_random(found.sweep["sizes"], item) for item in x]
    axes.plot(x, exact, color=plots.BOUND, linestyle="--", label="random, exact")
    axes.plot(x, x / np.sqrt(2 * np.pi), color=plots.BOUND, linestyle=":", label="random, lower bound (Cor. 1)")
    _finish(axes, found)


@plots.drawn(7.0, 4.6, legend="lower right")
def draw_b(found: Found, axes: plots.Axes) -> None:
    thin: dict[str, Any] = {"linestyle": "-", "linewidth": 0.6, "markersize": 2.2, "marker": "o", "capsize": 0}
    for line, both in found.table.by("line"):
        for state in ("random", "trained"):
            own = both.where(networks=state)
            index = KINDS.index(own[0]["lines"]) if state == "trained" else BLACK
            first = line == 0 or (state == "trained" and line == found.sweep["lines"])
            label = f"trained, one line {own[0]['lines']}" if state == "trained" else "random, one line"
            _points(axes, own, index, label if first else "_", elinewidth=0.4, alpha=0.7, **thin)
    _finish(axes, found)


def _points(axes: plots.Axes, rows: Table, index: int, label: str, **more: Any) -> None:
    """Means with error bars of two standard errors both ways; settings without enough networks are left out."""
    kept = Table(row for row in rows if np.isfinite(row["growth_error"]))
    plots.means(axes, kept, "weight_std", "growth", index, label, xerr=2 * kept.column("weight_std_error"), **more)


def _finish(axes: plots.Axes, found: Found) -> None:
    axes.set(xlabel=r"$\sigma_w$ of the hidden layers (trained: after training)", ylabel="growth factor a layer")
    if missed := int((~found["reached"]).sum()):
        axes.set_title(f"{missed} of {found['reached'].size} networks left out, below the accuracy", loc="left")


# The paper's 20 networks a sigma_w are trained, and 20 lines of each kind join test images. Its 20 random ones leave
# open whether lines agree within 5 %, so 20 more are measured.
_HOW = {"networks": 20, "random_networks": 40, "lines": 20, "lines_seed": 6, "points": 64, "accuracy": 0.95}
_HOW |= {"epochs": 30, "batch_size": 100, "learning_rate": 0.001}
_SPEC = Spec(data="mnist", sizes=(784, *[32] * 9, 10), **_HOW)
_FEW: dict[str, Any] = {"points": 16, "epochs": 150, "batch_size": 64, "learning_rate": 0.006}
_TRAINED = Sweep(train_and_measure, _SPEC, {"weight_std": WEIGHT_STDS}, stride=1)
PRESETS = _TRAINED.presets(data="digits", sizes=(64, *[32] * 9, 10), **_FEW)
_ABOUT = "{data}; depth 10, width 32; at each initial sigma_w {networks} networks trained to more than {accuracy:.0%} "
_ABOUT += "test accuracy, and {random_networks} random ones; Adam at {learning_rate:g}, batches of {batch_size}"
_TITLE, _artifact = "Growth in trained networks", partial(Artifact, place="appendix C.2", presets=PRESETS, about=_ABOUT)
_BOTH, _EACH = f"{_TITLE}, within and between classes", f"{_TITLE}, each line"
ARTIFACTS = (
    _artifact("price-tanner/fig6a", _BOTH, table=table_a, claims=claims_a, draw=draw_a),
    _artifact("price-tanner/fig6b", _EACH, table=table_b, claims=claims_b, draw=draw_b),
)
