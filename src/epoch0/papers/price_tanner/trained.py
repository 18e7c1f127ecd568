"""Price-Tanner Figure 6 (appendix C.2): growth in trained networks, averaged over lines (6a) and line by line (6b).

Definitions the paper leaves open, and what is taken here:

* a network has 10 weight layers, d - 32 - ... - 32 - 10 (nine ReLU layers, a linear output), biases start at zero;
* images are scaled to norm 1 ("normalised"), for training and for the lines alike;
* sigma_w of a network is the root mean square, over the eight 32 x 32 layers, of sqrt(32) times the standard deviation
  of the layer's weights; the first and the last layer change the width, so their growth is on another scale;
* the growth factor along a line is the ratio ||dz'|| / ||dz|| averaged over the pieces and over the same eight layers;
* a network is done at the first evaluation at which its test accuracy is above the target; it is measured as it was
  then, and a network that never gets there is reported and left out;
* neither the five sigma_w nor the optimizer are printed: here they are 1.0, 1.4, 1.8, 2.2, 2.6 and Adam.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from epoch0 import plots
from epoch0.curves import Line
from epoch0.data import DataSet, load
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.experiments.claims import Claim, Verdict, at_least, equal_within_error, linear
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers import pictures
from epoch0.papers.catalogue import Artifact
from epoch0.papers.means import Array, Mean, mean_and_error
from epoch0.papers.pictures import Axes, Figure
from epoch0.papers.sweep import Cell, Claims, Decision, Found, Sweep, Table, agrees, by
from epoch0.seeds import numpy_generator
from epoch0.theory import growth as theory
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.stacked import FreezeAt, Stacked

WEIGHT_STDS = (1.0, 1.4, 1.8, 2.2, 2.6)  # the five initial sigma_w; with these nearly every network learns in time
KINDS = ("within a class", "between classes")
LINEAR_R2 = (
    0.95  # variance that a straight line has to explain where the paper says "linear" or "exponential with depth"
)
RESOLUTION = 0.05  # lines agree if differences of this relative size would have been seen and were not
LEAST_SETTINGS = 3  # initial sigma_w with two networks above the accuracy that the claims about trained networks need
_WEIGHTS, _BATCHES = range(2)  # streams of a trial's seed


@dataclass(frozen=True)
class StackSpec:
    """Networks of one sigma_w (before the 1/sqrt(fan_in)), trained until they exceed an accuracy, or for all epochs.

    ``random_networks`` are measured before training, the first ``networks`` of them are trained. ``lines`` join images
    within a class, and as many again images of two; ``lines_seed`` is the same in every trial of a figure.
    """

    data: str
    sizes: tuple[int, ...]
    weight_std: float
    networks: int
    random_networks: int
    lines: int
    lines_seed: int
    points: int
    accuracy: float
    epochs: int
    batch_size: int
    learning_rate: float


def train_and_measure(spec: StackSpec, seed: int) -> dict[str, Any]:
    """Train a stack of networks and carry every line through it, before and after.

    ``reached``, ``accuracy`` on the test set and ``epochs`` (-1 for never) are (networks,), as are ``std_trained`` and
    ``std_random``, sigma_w of each; ``growth_...`` is (networks, lines); ``log_length_...``, the mean over the lines of
    the log of the length relative to the first hidden layer, (networks, hidden layers).
    """
    torch.set_num_threads(1)
    examples, held_out = load(spec.data, "train"), load(spec.data, "test")
    inputs, targets = _tensors(examples)
    if inputs.shape[1] != spec.sizes[0] or len(examples.classes) != spec.sizes[-1]:
        has = f"{inputs.shape[1]} pixels and {len(examples.classes)} classes"
        raise InputError(f"{spec.data} has {has}; sizes are {list(spec.sizes)}.")
    pairs = line_pairs(held_out.labels, spec.lines, spec.lines_seed)
    test_inputs, test_targets = _tensors(held_out)
    ends = test_inputs[torch.from_numpy(pairs)]  # (lines, 2, pixels)
    weights_seed, batches_seed = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES))
    nets = ensemble(spec.random_networks, spec.sizes, weights=Gaussian(spec.weight_std), seed=weights_seed)
    before = _measured(Stacked.of(nets), ends, spec.points, seed)
    stack = Stacked.of([nets[index] for index in range(spec.networks)])
    how: dict[str, Any] = {"epochs": spec.epochs, "batch_size": spec.batch_size, "learning_rate": spec.learning_rate}
    how |= {"optimizer": "adam", "loss": stack.loss(F.cross_entropy), "seed": batches_seed}
    how |= {"evaluate": Accuracy(test_inputs, test_targets), "callbacks": [FreezeAt("accuracy", spec.accuracy)]}
    done = train(stack, (inputs, targets), until=lambda row: bool(row["running"] == 0), **how)
    stack.settle()
    after = _measured(stack, ends, spec.points, seed)
    at = stack.frozen_at.numpy()
    rows = {row["step"]: row for row in done.history if "accuracy" in row}
    accuracy = [rows[step if step >= 0 else done.history[-1]["step"]] for step in at.tolist()]
    per_epoch = -(-len(inputs) // spec.batch_size)
    result: dict[str, Any] = {
        "reached": at >= 0,
        "accuracy": np.array([row["accuracy"][index] for index, row in enumerate(accuracy)]),
        "epochs": np.where(at >= 0, at / per_epoch, -1.0),
    }
    for name, (std, growth, log_length) in (("random", before), ("trained", after)):
        result |= {f"std_{name}": std, f"growth_{name}": growth, f"log_length_{name}": log_length}
    return result


def line_pairs(labels: Array, lines: int, seed: int) -> Array:
    """Which two examples each line joins: first ``lines`` pairs of one class, then ``lines`` of two classes."""
    source = numpy_generator(seed)
    counts = np.bincount(labels)
    if lines < 1 or counts.max() < 2 or (counts > 0).sum() < 2:
        raise InputError(f"{lines} lines of each kind cannot be drawn between {len(labels)} examples of these classes.")
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
    if not square:
        raise InputError("the networks have no two hidden layers of equal width, so they have no sigma_w to tell.")
    variances = torch.stack([p.double().var(dim=(1, 2)) * p.shape[2] for p in square])
    return np.asarray(variances.mean(0).sqrt().numpy())


def _measured(stack: Stacked, ends: Tensor, points: int, seed: int) -> tuple[Array, Array, Array]:
    """sigma_w, growth factor along each line, log length at the hidden layers relative to the first."""
    networks = [stack.unstack(index).eval().requires_grad_(False) for index in range(len(stack))]
    growth, logs = [], []
    for line, (start, end) in enumerate(ends):
        found = trajectory_length(networks, Line(start, end), points=points, seed=seed + line)
        growth.append(found.network_growth[:, 1:].mean(-1))
        hidden = found.network_lengths[:, 1:]
        logs.append(np.log(np.maximum(hidden, np.finfo(float).tiny) / hidden[:, :1]))
    return weight_std(stack), np.stack(growth, 1), np.mean(logs, 0)


def _tensors(data: DataSet) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(data.inputs("norm")), torch.from_numpy(data.labels)


class Trained:
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
        """Columns of every row: sigma_w, how many networks, their accuracy and those left out."""
        std, error = _mean(self.of("std", state))
        told = {"initial_std": self.cell.at["weight_std"], "weight_std": float(std), "weight_std_error": float(error)}
        told |= {"count": len(self.of("std", state)), "accuracy": None, "missed": ""}
        if state == "trained":
            told["missed"] = ", ".join(str(index) for index in np.flatnonzero(~self.reached))
            told["accuracy"] = float(self.cell["accuracy"][0][self.reached].mean()) if self.learned else None
        return told


def _mean(values: Array) -> Mean:
    """Over the first axis; NaN where no network is left."""
    missing = np.full(values.shape[1:], np.nan)
    return mean_and_error(values) if len(values) else Mean(missing, missing)


def table_a(found: Found) -> Table:
    """Figure 6a: one row an initial sigma_w, kind of line, and state of the networks.

    The errors of the growth join those over networks and over lines: both are samples.
    """
    rows = Table()
    for trained in map(Trained, found):
        for state in ("trained", "random"):
            about = trained.about(state)
            for kind, name in enumerate(KINDS):
                growth = trained.kind(state, kind)
                mean, over_lines = mean_and_error(_mean(growth).mean)
                error = np.hypot(over_lines, _mean(growth.mean(1)).error)
                exact = exact_random(found.sweep["sizes"], about["weight_std"])
                measured = {"growth": float(mean), "growth_error": float(error), "exact_random": exact}
                rows.append({"networks": state, "lines": name, **about, **measured})
    return rows


def table_b(found: Found) -> Table:
    """Figure 6b: one row an initial sigma_w, line, and state of the networks; errors over networks."""
    rows = Table()
    for trained in map(Trained, found):
        for state in ("trained", "random"):
            about, growth = trained.about(state), trained.of("growth", state)
            for line in range(growth.shape[1]):
                mean, error = _mean(growth[:, line])
                named = {"networks": state, "line": line, "lines": KINDS[2 * line // growth.shape[1]]}
                rows.append({**named, **about, "growth": float(mean), "growth_error": float(error)})
    return rows


def exact_random(sizes: Sequence[int], std: float) -> float:
    """Growth factor of a random network with that sigma_w in its square layers."""
    return float(theory.exact(Gaussian(std / sizes[1] ** 0.5), sizes[1])) if np.isfinite(std) else float("nan")


def claims_a(found: Found) -> Claims:
    """The statements of appendix C.2 and section 4 about averages over lines."""
    gathered = _enough(found)
    if len(gathered) < LEAST_SETTINGS:
        return {"what holds for random networks survives training": _too_few(found)}
    decided, counts = {}, [trained.learned for trained in gathered]
    for trained in gathered:
        mean, error = mean_and_error(trained.of("log_length", "trained")[:, 1:])
        text = f"length in trained networks is exponential in depth, {trained.name}"
        decided[text] = by(linear, np.arange(2, len(mean) + 2), mean, error, trained.learned, least_r2=LINEAR_R2)
    stds = [trained.of("std", "trained").mean() for trained in gathered]
    for kind, name in enumerate(KINDS):
        mean, error = np.transpose([mean_and_error(trained.kind("trained", kind).mean(1)) for trained in gathered])
        text = f"growth in trained networks is linear in their sigma_w, lines {name}"
        decided[text] = by(linear, stds, mean, error, counts, least_r2=LINEAR_R2)
    pairs = [[mean_and_error(trained.kind("trained", kind).mean(0)) for kind in (0, 1)] for trained in gathered]
    more = [between.mean - within.mean for within, between in pairs]
    errors = [float(np.hypot(within.error, between.error)) for within, between in pairs]
    text = "in trained networks lines between classes grow more than lines within a class"
    decided[text] = by(at_least, more, errors, 0.0, found.sweep["lines"], [trained.name for trained in gathered])
    text = "trained networks grow lines by another factor than random ones of equal sigma_w"
    return {**decided, text: partial(_unlike_random, found, gathered)}


def _enough(found: Found) -> list[Trained]:
    """Where two networks learned, so that there is a standard error."""
    return [trained for trained in map(Trained, found) if trained.learned >= 2]


def _unlike_random(found: Found, gathered: Sequence[Trained], text: str) -> Claim:
    """Section 4: the factor "is not the same size in random nets as it is in trained nets with the same sigma_w".

    The opposite of agreement at every sigma_w; two curves that differ may still cross.
    """
    mean, error = np.transpose([mean_and_error(trained.of("growth", "trained").mean(1)) for trained in gathered])
    sizes, counts = found.sweep["sizes"], [trained.learned for trained in gathered]
    exact = np.array([exact_random(sizes, float(trained.of("std", "trained").mean())) for trained in gathered])
    names = [trained.name for trained in gathered]
    agree = agrees(text, mean, error, exact, counts, names, RESOLUTION, ("trained", "random, exact"))
    opposite: dict[Verdict, Verdict] = {"holds": "fails", "fails": "holds", "undecided": "undecided"}
    evidence = f"trained over random: {', '.join(f'{ratio:.2f}' for ratio in mean / exact)}; {agree.evidence}"
    return Claim(text, opposite[agree.verdict], evidence, agree.numbers, agree.needed)


def claims_b(found: Found) -> Claims:
    """The statements of appendix C.2 about single lines: they differ after training and agree before."""
    trained, after = _enough(found), _too_few(found)
    if len(trained) >= LEAST_SETTINGS:
        after = partial(_differ, [_lines_agree([one], "trained")(one.name) for one in trained])
    return {
        "the growth factor depends on the line in trained networks": after,
        "the growth factor does not depend on the line in random networks": _lines_agree(
            list(map(Trained, found)), "random"
        ),
    }


def _lines_agree(gathered: Sequence[Trained], state: str) -> Decision:
    """All lines have one growth factor, in every setting.

    All lines pass through the same networks, so what a network adds to all of them alike is taken out first.
    """
    each = [trained.of("growth", state) for trained in gathered]
    own = [mean_and_error(growth - growth.mean(1, keepdims=True) + growth.mean()) for growth in each]
    samples = [np.full(growth.shape[1], len(growth)) for growth in each]
    names, lines = [trained.name for trained in gathered], [f"line {line + 1}" for line in range(each[0].shape[1])]
    means, errors = [one.mean for one in own], [one.error for one in own]
    return by(equal_within_error, means, errors, samples, resolution=RESOLUTION, settings=names, groups=lines)


def _differ(agree: Sequence[Claim], text: str) -> Claim:
    """The opposite of agreement, in every setting: holds if agreement fails in all, fails if it holds in one."""
    verdicts = [claim.verdict for claim in agree]
    if "holds" in verdicts:
        found = agree[verdicts.index("holds")]
        return Claim(text, "fails", f"not so: {found.evidence}", found.numbers)
    if "undecided" in verdicts:
        return replace(agree[verdicts.index("undecided")], text=text)
    found = max(agree, key=lambda claim: claim.numbers["p"])
    return Claim(text, "holds", f"in all {len(agree)} settings, least clearly: {found.evidence}", found.numbers)


def _too_few(found: Found) -> Decision:
    target = f"{100 * found.sweep['accuracy']:g} %"
    evidence = f"fewer than {LEAST_SETTINGS} initial sigma_w have two networks above {target} test accuracy"
    return lambda text: Claim(text, "undecided", evidence)


_THIN: dict[str, Any] = {"linestyle": "-", "linewidth": 0.6, "markersize": 2.2, "marker": "o", "capsize": 0}
_THIN |= {"elinewidth": 0.4, "alpha": 0.7}
BLACK = 6  # place of black among the colours; the random networks have it, as in the paper


def draw_a(found: Found) -> Figure:
    """Figure 6a: growth factor against sigma_w, averaged over the lines of each kind."""
    picture, axes = plots.figure(7.0, 4.6)
    with plots.style():
        rows = found.table
        random = rows.where(networks="random")
        for index, kind in enumerate(KINDS):
            own = rows.where(networks="trained", lines=kind)
            _points(axes, own, index, f"trained, lines {kind}", linestyle="-")
            for row in own:
                _arrow(axes, random.where(initial_std=row["initial_std"])[0], row, index)
        _points(axes, random.where(lines=KINDS[0]), BLACK, "random, before training")
        _theory(axes, found.sweep, rows)
        _finish(axes, found)
        handles, labels = axes.get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda place: "exact" in labels[place] or "bound" in labels[place])
        axes.legend([handles[place] for place in order], [labels[place] for place in order])
    return picture


def draw_b(found: Found) -> Figure:
    """Figure 6b: the same for each line, in colour for trained networks and black for random ones."""
    picture, axes = plots.figure(7.0, 4.6)
    with plots.style():
        for line, both in found.table.by("line"):
            for state in ("random", "trained"):
                own = both.where(networks=state)
                index = KINDS.index(own[0]["lines"]) if state == "trained" else BLACK
                first = line == 0 or (state == "trained" and line == found.sweep["lines"])
                label = f"trained, one line {own[0]['lines']}" if state == "trained" else "random, one line"
                _points(axes, own, index, label if first else "_", **_THIN)
        _finish(axes, found)
        axes.legend(loc="lower right")
    return picture


def _points(axes: Axes, rows: Table, index: int, label: str, **more: Any) -> None:
    """Means with error bars of two standard errors both ways; settings without enough networks are left out."""
    kept = Table(row for row in rows if np.isfinite(row["growth_error"]))
    pictures.points(axes, kept, "weight_std", "growth", index, label, xerr=2 * kept.column("weight_std_error"), **more)


def _arrow(axes: Axes, start: dict[str, Any], end: dict[str, Any], index: int) -> None:
    """From the random networks to what training made of them."""
    if np.isfinite(end["growth"]):
        head, tail = [(row["weight_std"], row["growth"]) for row in (end, start)]
        look = {"arrowstyle": "->", "color": plots.COLOURS[index], "alpha": 0.35, "shrinkA": 4, "shrinkB": 4}
        axes.annotate("", head, tail, arrowprops=look)


def _theory(axes: Axes, sweep: Sweep, rows: Table) -> None:
    """The exact law of random networks, and the paper's lower bound for them."""
    stds = rows.column("weight_std")
    x = np.linspace(np.nanmin(stds), np.nanmax(stds), 50)
    exact = [exact_random(sweep["sizes"], one) for one in x]
    axes.plot(x, exact, color=plots.BOUND, linestyle="--", label="random, exact")
    axes.plot(x, x / np.sqrt(2 * np.pi), color=plots.BOUND, linestyle=":", label="random, lower bound (Cor. 1)")


def _finish(axes: Axes, found: Found) -> None:
    """Labels, and how many networks are not shown."""
    axes.set_xlabel(r"$\sigma_w$ of the hidden layers (trained: after training)")
    axes.set_ylabel("growth factor a layer")
    missed = int((~found["reached"]).sum())
    if missed:
        axes.set_title(f"{missed} networks that missed the accuracy left out", loc="left")


def _preset(*spec: Any) -> Sweep:
    """Both train the paper's 20 networks a sigma_w, and draw 20 lines of each kind between test images.

    Of random networks the paper has 20 too; they leave open whether lines agree within 5 %, so 20 more are measured.
    """
    data, inputs, *training = spec
    made = StackSpec(data, (inputs, *[32] * 9, 10), 0.0, 20, 40, 20, 6, *training)
    return Sweep(train_and_measure, made, {"weight_std": WEIGHT_STDS}, stride=1)


PRESETS = {
    "quick": _preset("digits", 64, 16, 0.95, 150, 64, 0.006),
    "paper": _preset("mnist", 784, 64, 0.95, 30, 100, 0.001),
}


def _about(sweep: Sweep) -> str:
    note = {"digits": "digits, 8 x 8", "mnist": "MNIST"}[sweep["data"]]
    told = (
        "depth 10, width 32; at each initial sigma_w {networks} networks trained to more than {accuracy:.0%} test "
        "accuracy and {random_networks} random ones; bars: two standard errors"
    )
    return f"{note}; {sweep.told(told).replace('%', ' %')}"


_KINDS_TITLE = "Growth in trained networks, within and between classes"
_LINES_TITLE = "Growth in trained networks, each line"
ARTIFACTS = (
    Artifact("price-tanner/fig6a", _KINDS_TITLE, "appendix C.2", PRESETS, table_a, claims_a, draw_a, _about),
    Artifact("price-tanner/fig6b", _LINES_TITLE, "appendix C.2", PRESETS, table_b, claims_b, draw_b, _about),
)
