"""The demo: three networks on real digits, which will train and why, the proof, and one figure of a paper.

Everything it says is measured while it runs: checkups (Schoenholz et al. 2017, Hayou et al. 2021), short training
runs, the
same networks again with the checkup's factors on their weights, and Price & Tanner's Figure 3b with its claims.
"""

import base64
import copy
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from epoch0 import data
from epoch0.diagnosis import Checkup, checkup, report
from epoch0.diagnosis.wording import SIGNS
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.experiments.engine import Engine, one_thread
from epoch0.networks import mlp
from epoch0.seeds import generator
from epoch0.train.loop import train
from epoch0.train.record import Accuracy

DEPTH, WIDTH, CHANNELS, CONVOLUTIONS = 12, 64, 16, 10
EPOCHS, BATCH, RATES = 12, 64, (0.1, 0.01)
FIGURE = "price-tanner/fig3b"
SEED = 0

Say = Callable[[str], Any]


@dataclass(frozen=True)
class Case:
    """One network of the demo.

    Attributes:
        title: what it is.
        about: why it is here.
        build: makes it, the same each time.
        flat: whether it takes flat vectors instead of images.
    """

    title: str
    about: str
    build: Callable[[], nn.Module]
    flat: bool


def pytorch_default() -> nn.Module:
    """A deep ReLU network with the weights that ``nn.Linear`` draws: uniform, variance 1/(3 fan_in), gain 1/6."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator(SEED).initial_seed()) % 2**63)
        layers: list[nn.Module] = []
        for fan_in in (64, *[WIDTH] * (DEPTH - 1)):
            layers += [nn.Linear(fan_in, WIDTH), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def he() -> nn.Module:
    """The same network with He's law, variance 2/fan_in: gain 1."""
    return mlp([64, *[WIDTH] * DEPTH, 10], weights=Gaussian(2**0.5), seed=SEED)


def loud_convolutions() -> nn.Module:
    """A convolutional network whose weights are about twice too large: gain about 4."""
    source, layers, channels = generator(SEED, 1), list[nn.Module](), 1
    for _ in range(CONVOLUTIONS):
        layer = skip_init(nn.Conv2d, channels, CHANNELS, 3, padding=1, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=source) * (8 / (9 * channels)) ** 0.5)
        layers += [layer, nn.ReLU()]
        channels = CHANNELS
    head = skip_init(nn.Linear, CHANNELS * 16, 10, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=source) * (1 / head.in_features) ** 0.5)
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), head)


CASES = (
    Case(
        f"{DEPTH} ReLU layers, PyTorch's default weights",
        "What nn.Linear gives when nobody asks for anything else: variance 1/(3 fan_in), a gain of 1/6 a layer.",
        pytorch_default,
        True,
    ),
    Case(
        f"{DEPTH} ReLU layers, He's weights",
        "The same network with variance 2/fan_in: a gain of 1 a layer, the edge of chaos.",
        he,
        True,
    ),
    Case(
        f"{CONVOLUTIONS} convolutions, weights twice too large",
        "A convolutional network with variance 8/fan_in, such as a wrong fan or a forgotten factor gives.",
        loud_convolutions,
        False,
    ),
)


@dataclass(frozen=True)
class Outcome:
    """A case, what the checkup said before training, and what training then did.

    Attributes:
        case: the network.
        checkup: what was said.
        accuracy: test accuracy after training, for each learning rate.
        treated: the same after multiplying the weights by the checkup's factors, None where nothing had to change.
    """

    case: Case
    checkup: Checkup
    accuracy: dict[float, float]
    treated: dict[float, float] | None

    @property
    def best(self) -> float:
        """Test accuracy at the better learning rate."""
        return max(self.accuracy.values())

    @property
    def best_treated(self) -> float | None:
        """The same with the factors."""
        return None if self.treated is None else max(self.treated.values())


def run(out: Path, workers: int | None = None, echo: Say | None = None) -> dict[str, Any]:
    """Run the demo and write ``report.html`` into a folder.

    >>> run(Path("demo-out"))["networks"][0]["outcome"]                          # doctest: +SKIP
    'vanishing'

    Args:
        out: folder for the report; made if it is missing.
        workers: worker processes for the figure; by default as many as there are cores.
        echo: is given each line of the summary as soon as it is known.

    Returns:
        The summary as plain data.

    Raises:
        InputError: if the folder cannot be made or written to, or workers is not 1 or more.
    """
    say: Say = echo or (lambda line: None)
    started = time.monotonic()
    Engine(workers=workers)  # starts nothing: a wrong number is told before anything runs or is made
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"the folder {str(out)!r} cannot be made: {problem.strerror or problem}.") from problem
    batches = {flat: _digits(flat) for flat in (True, False)}
    say("Three networks on the embedded digits (1,437 to train on, 360 to test), judged before training:")
    outcomes = []
    for case in CASES:
        with one_thread():  # training amplifies rounding, and rounding depends on the number of threads
            outcome = _examine(case, batches[case.flat])
        outcomes.append(outcome)
        for line in _lines(outcome):
            say(line)
    say(f"Price & Tanner, Figure 3b ({FIGURE}, quick preset):")
    figure = _figure(workers)
    for claim in figure["claims"]:
        say(f"  {SIGNS.get(claim['verdict'], '·')} {claim['verdict']}: {claim['text']}")
    seconds = time.monotonic() - started
    path = report.write(_page(outcomes, figure, seconds), out / "report.html")
    say(f"Written in {seconds:.0f} s: {path}")
    return {
        "report": str(path),
        "seconds": seconds,
        "networks": [
            {
                "title": o.case.title,
                "outcome": o.checkup.outcome,
                "verdict": o.checkup.verdict,
                "accuracy": {str(rate): value for rate, value in o.accuracy.items()},
                "with_factors": None if o.treated is None else {str(rate): value for rate, value in o.treated.items()},
            }
            for o in outcomes
        ],
        "figure": {"id": FIGURE, "claims": figure["claims"]},
    }


Digits = tuple[Tensor, Tensor, Tensor, Tensor]


def _digits(flat: bool) -> Digits:
    """Training inputs and labels, test inputs and labels."""
    seen, unseen = data.load("digits", "train"), data.load("digits", "test")
    x, test_x = seen.inputs("standard", flat), unseen.inputs("standard", flat, like=seen)
    tensors = (torch.from_numpy(a) for a in (x, seen.labels, test_x, unseen.labels))
    return tuple(tensors)  # type: ignore[return-value]


def _examine(case: Case, digits: Digits) -> Outcome:
    x, labels, _, _ = digits
    net = case.build()
    found = checkup(net, x[:128], labels[:128], seed=SEED, name=case.title, inputs="128 of the embedded digits")
    accuracy = _trained(net, digits)
    treated = None
    if not found.trains:
        with torch.no_grad():
            for layer in found.layers:
                for name in layer.weights:
                    net.get_parameter(name).mul_(layer.factor or 1.0)
        treated = _trained(net, digits)
    return Outcome(case, found, accuracy, treated)


def _trained(net: nn.Module, digits: Digits) -> dict[float, float]:
    """Test accuracy after a short training of a copy with plain SGD, for each learning rate."""
    x, labels, test_x, test_labels = digits
    measure, accuracies = Accuracy(test_x, test_labels), {}
    for rate in RATES:
        student = copy.deepcopy(net)
        train(student, (x, labels), epochs=EPOCHS, batch_size=BATCH, optimizer="sgd", learning_rate=rate, seed=SEED)
        accuracies[rate] = float(measure(student)["accuracy"])
    return accuracies


def _lines(outcome: Outcome) -> list[str]:
    found = outcome.checkup
    lines = [
        f"  {SIGNS[found.outcome]} {outcome.case.title}",
        f"      before: {found.verdict}",
        f"      trained {EPOCHS} epochs: {outcome.best:.0%} of the test digits right",
    ]
    if outcome.best_treated is not None:
        lines.append(f"      with the checkup's factors on its weights: {outcome.best_treated:.0%}")
    return lines


def _figure(workers: int | None) -> dict[str, Any]:
    """The figure as a PNG in text, and its claims as plain data."""
    from epoch0.papers.reproduce import reproduce

    result = reproduce(FIGURE, preset="quick", workers=workers)
    buffer = io.BytesIO()
    result.figure.savefig(buffer, format="png", dpi=160, bbox_inches="tight", metadata={"Software": None})
    claims = [{"text": c.text, "verdict": c.verdict, "evidence": c.evidence} for c in result.claims]
    return {"png": base64.b64encode(buffer.getvalue()).decode("ascii"), "claims": claims}


def _page(outcomes: Sequence[Outcome], figure: dict[str, Any], seconds: float) -> str:
    cases = []
    for outcome in outcomes:
        plain = outcome.checkup.to_dict()
        cases.append(
            {
                "title": outcome.case.title,
                "about": outcome.case.about,
                "c": plain,
                "pictures": report.pictures(plain),
                "accuracy": outcome.accuracy,
                "treated": outcome.treated,
                "best": outcome.best,
                "best_treated": outcome.best_treated,
            }
        )
    facts = {"cases": cases, "figure": figure, "seconds": seconds, "rates": RATES, "epochs": EPOCHS}
    embedded = report.embedded_json([case["c"] for case in cases])
    return report.environment().get_template("demo.html.j2").render(**facts, data=embedded)


def main() -> None:
    """Run the demo into ``demo-out`` and show its summary."""
    from rich.console import Console

    run(Path("demo-out"), echo=Console(highlight=False, markup=False).print)


if __name__ == "__main__":
    main()
