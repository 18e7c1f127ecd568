"""The demo: three networks on real digits, which train and with what, the proof, and one figure of a paper.

Everything it says is measured while it runs: checkups (Schoenholz et al. 2017, Hayou et al. 2021), short training
runs, the same again after :func:`epoch0.initialize` where one failed, and Price & Tanner's Figure 3b with its claims.
"""

import base64
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epoch0 import plots
from epoch0.diagnosis import checkup, report
from epoch0.diagnosis.step import USUAL
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import SIGNS, chance
from epoch0.distributions import Gaussian
from epoch0.experiments.engine import Engine, one_thread
from epoch0.files import made, write_atomic
from epoch0.initialization import initialize
from epoch0.networks import mlp
from epoch0.papers.reproduce import reproduce
from epoch0.papers.trials import tensors
from epoch0.seeds import generator
from epoch0.tracing.guard import draw_anew, noise_kept
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train

SHALLOW, DEEP, WIDTH, LOUD = 8, 20, 64, 4.0
EPOCHS, BATCH = 10, 64
TRAINS = 0.8  # share of the test digits from which training counts as a success, as where the verdict was calibrated

FIGURE = "price-tanner/fig3b"
SEED = 0


@dataclass(frozen=True)
class Case:
    """One network of the demo."""

    title: str
    about: str  # why it is here
    build: Callable[[], nn.Module]  # the same each time


def pytorch_default(depth: int) -> nn.Module:
    """A ReLU network with the weights that ``nn.Linear`` draws: uniform, variance 1/(3 fan_in), gain 1/6."""
    with noise_kept():
        draw_anew(int(generator(SEED).initial_seed()) % 2**63)
        layers: list[nn.Module] = []
        for fan_in in (64, *[WIDTH] * (depth - 1)):
            layers += [nn.Linear(fan_in, WIDTH), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


_USUAL = "What nn.Linear gives when nobody asks for anything else: variance 1/(3 fan_in), a gain of 1/6 a layer."
_DEEPER = "The same, deeper: what hardly matters over a few layers multiplies."
_GROWING = f"Variance {LOUD**2:g}/fan_in instead of 1/fan_in, as a forgotten division gives: small differences grow."
_loud = partial(mlp, [64, *[WIDTH] * DEEP, 10], "tanh", weights=Gaussian(LOUD), seed=SEED)  # chaotic, and saturated
CASES = (
    Case(f"{SHALLOW} ReLU layers, PyTorch's default weights", _USUAL, partial(pytorch_default, SHALLOW)),
    Case(f"{DEEP} ReLU layers, PyTorch's default weights", _DEEPER, partial(pytorch_default, DEEP)),
    Case(f"{DEEP} tanh layers, weights {LOUD:g} times too large", _GROWING, _loud),
)


def run(out: Path, workers: int | None = None, echo: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Run the demo and write ``report.html`` into a folder.

    >>> run(Path("demo-out"))["networks"][0]["recipes"]["adam"]["right"]         # doctest: +SKIP
    True

    ``workers`` processes make the figure, by default as many as there are cores; ``echo`` is given each line of the
    summary as soon as it is known, which comes back as plain data.
    """
    say, started = echo or (lambda line: None), time.monotonic()
    Engine(workers=workers)  # starts nothing: a wrong number is an error before anything runs
    with made(out):
        digits = (*tensors("digits"), *tensors("digits", "test"))
        cases, networks = list[dict[str, Any]](), list[dict[str, Any]]()
        say("Three networks on the embedded digits (1,437 to train on, 360 to test), assessed before training:")
        for case in CASES:
            with one_thread():  # training amplifies rounding, and rounding depends on the number of threads
                both, done = _examine(case, digits)
            for line in _lines(both):
                say(line)
            before, *after = ({key: value for key, value in item.items() if key != "c"} for item in both)
            networks.append({**before, "after": after[0] if after else None})
            shown = [{**item, "pictures": report.pictures(item["c"])} for item in both]
            cases.append({"title": case.title, "about": case.about, "done": done, "both": shown})
        say(f"Price & Tanner, Figure 3b ({FIGURE}, quick preset):")
        found = reproduce(FIGURE, preset="quick", workers=workers)
        claims = [{"text": c.text, "verdict": c.verdict, "evidence": c.evidence} for c in found.claims]
        figure = {"png": base64.b64encode(plots.png(found.figure, dpi=160)).decode("ascii"), "claims": claims}
        for claim in found.claims:
            say(f"  {SIGNS.get(claim.verdict, '·')} {claim.verdict}: {claim.text}")
        seconds = time.monotonic() - started
        facts = {"cases": cases, "figure": figure, "seconds": seconds, "epochs": EPOCHS, "least": TRAINS}
        embedded = report.embedded_json([item["c"] for shown_case in cases for item in shown_case["both"]])
        page = report.environment().get_template("demo.html.j2").render(**facts, data=embedded)
        path = write_atomic(out / "report.html", page.encode(), "page")
        say(f"Written in {seconds:.0f} s: {path}")
    return {"report": str(path), "seconds": seconds, "networks": networks, "figure": {"id": FIGURE, "claims": claims}}


def _examine(case: Case, digits: tuple[Tensor, ...]) -> tuple[list[dict[str, Any]], str]:
    """The network as it is and, where training failed with an optimizer, after ``initialize``; what that did."""
    net = case.build()
    before = _judged(case.title, net, digits)
    if all(recipe["best"] > TRAINS for recipe in before["recipes"].values()):
        return [before], ""
    done = initialize(net, x=digits[0][:128], seed=SEED)
    return [before, _judged(f"{case.title}, initialized", net, digits)], done.summary


def _judged(title: str, net: nn.Module, digits: tuple[Tensor, ...]) -> dict[str, Any]:
    """The checkup first, then training of copies: at the rate it suggests, where that fails at the usual one, too."""
    x, labels, test_x, test_labels = digits
    found = checkup(net, x[:128], labels[:128], seed=SEED, name=title, inputs="128 of the embedded digits")
    measure, recipes = Accuracy(test_x, test_labels), dict[str, dict[str, Any]]()
    for name, usual in USUAL.items():
        settings = "adam" if name == "adam" else partial(torch.optim.SGD, momentum=0.9)
        given, accuracy = found.recipes[name], dict[str, float]()
        for rate in dict.fromkeys((given.learning_rate, usual)):
            student = copy.deepcopy(net)
            plan = dict[str, Any](epochs=EPOCHS, batch_size=BATCH, optimizer=settings, learning_rate=rate, seed=SEED)
            train(student, (x, labels), **plan)
            accuracy[str(rate)] = float(measure(student)["accuracy"])
            if accuracy[str(rate)] > TRAINS:
                break
        recipe = {"said": given.trains, "probability": given.probability, "learning_rate": given.learning_rate}
        best = max(accuracy.values())
        recipes[name] = {**recipe, "accuracy": accuracy, "best": best, "right": given.trains == (best > TRAINS)}
    verdict = {"title": found.model, "outcome": found.outcome, "verdict": found.verdict}
    return {**verdict, "recipes": recipes, "c": found.to_dict()}


def _lines(both: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for item in both:
        lines += [f"  {SIGNS[item['outcome']]} {item['title']}", f"      before training: {item['verdict']}"]
        for name, recipe in item["recipes"].items():
            word, right = chance(recipe["probability"]), "as said" if recipe["right"] else "not as said"
            lines.append(f"      {NAMES[name]}: {word} to train; {recipe['best']:.0%} of the test digits, {right}")
    return lines
