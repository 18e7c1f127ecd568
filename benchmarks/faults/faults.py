"""Programs that did not learn, broken and mended, and training that shows it.

    python benchmarks/faults/faults.py [NAME ...]    # trains over three seeds and compares with outcomes.json

README.md says where they are from.
"""

import importlib
import json
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults import KINDS

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
Step = Callable[..., float]
"""One batch: step(model, optimizer, loss, x, y) returns the loss."""


@dataclass
class Program:
    """All that a training needs, and the score on which it has learned; higher scores are better."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    score: Callable[[Tensor, Tensor], float]
    learned: float
    batch_size: int
    epochs: int
    held_out: tuple[Tensor, Tensor] | None = None  # what is scored, where that is not the training set
    step: Step | None = None  # of programs with a loop body of their own


@dataclass(frozen=True)
class Fault:
    """A broken program; ``build`` draws its weights from torch's global stream, so seed that first."""

    source: str
    story: str
    fixes: dict[str, list[str]]  # by name: what it changes, one of KINDS, and how
    build: Callable[[frozenset[str]], Program]  # of the fixes that are made


def load() -> dict[str, Fault]:
    """The programs of all files ``cases_*.py`` by name."""
    known, found = json.loads((HERE / "outcomes.json").read_text()), {}
    for path in sorted(HERE.glob("cases_*.py")):
        for name, build in importlib.import_module(path.stem).PROGRAMS.items():
            found[name] = Fault(known[name]["source"], known[name]["story"], known[name]["fixes"], build)
    assert found.keys() == known.keys()
    assert {kind for fault in found.values() for kind, _ in fault.fixes.values()} <= set(KINDS)
    return {name: found[name] for name in known}


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable, x: Tensor, y: Tensor) -> float:
    optimizer.zero_grad()
    error = loss(model(x), y)
    error.backward()
    optimizer.step()
    return error.item()


def train(build: Callable[[frozenset[str]], Program], fixes: frozenset[str], seed: int) -> tuple[float, bool]:
    """The score after all epochs, minus infinity if a loss is NaN or an output not finite, and whether it suffices."""
    torch.manual_seed(seed)
    program = build(fixes)
    model, optimizer, step = program.model, program.optimizer(program.model), program.step or plain_step
    order = torch.Generator().manual_seed(seed)
    for _ in range(program.epochs):
        model.train()
        for rows in torch.randperm(len(program.inputs), generator=order).split(program.batch_size):
            error = step(model, optimizer, program.loss, program.inputs[rows], program.targets[rows])
            if math.isnan(error):
                return -math.inf, False
    x, y = program.held_out or (program.inputs, program.targets)
    with torch.no_grad():
        outputs = torch.cat([model.eval()(part) for part in x.split(1024)])
    score = program.score(outputs, y) if outputs.isfinite().all() else -math.inf
    return score, score >= program.learned


def main(names: list[str]) -> int:
    """How many of the programs do not come out as outcomes.json has them."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known, faults, differ = json.loads((HERE / "outcomes.json").read_text()), load(), 0
    for name in names or faults:
        ways = {"broken": frozenset(), "mended": frozenset(faults[name].fixes)}
        runs = {way: [train(faults[name].build, fixes, seed) for seed in SEEDS] for way, fixes in ways.items()}
        learns = {way: sum(enough for _, enough in runs[way]) >= 2 for way in runs}
        same = (learns["mended"] and not learns["broken"]) == known[name]["reproduces"]
        differ += not same
        scores = {way: " ".join(f"{score:.4f}" for score, _ in runs[way]) for way in runs}
        told = "as known" if same else "NOT AS KNOWN"
        exact = all([round(score, 4) for score, _ in runs[way]] == known[name][way] for way in runs)
        print(f"{name:26} {scores['broken']} | {scores['mended']}  {told}{', to the digit' * exact}", flush=True)
    return differ


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
