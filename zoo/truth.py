"""What plain training really gives, for every model of the zoo: kept in ``outcomes.json``, run again only on demand.

``python zoo/truth.py [ONLY] [--again] [--seconds 240]``. Each model is trained with Adam and with SGD with momentum,
with rates in the order in which they are likely to work, on a fresh batch every step, until one brings the mean of the
last losses below half of what the first loss was *and* of what a constant answer costs. No code of epoch0 is used.
"""

import argparse
import json
import os
import re
import time
import warnings
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import cases
import torch

import models

OUTCOMES = Path(__file__).parent / "outcomes.json"
STEPS = 100
"""Steps of a run, if nothing else is asked for; three times as many where a step takes less than QUICK seconds."""
QUICK = 0.05
LAST = 5
"""Losses averaged."""
TRAINS, SLOW = 0.5, 0.9
"""Share of the smaller of first loss and constant answer below which a model trains, and above which it does not,
unless its loss is still falling at the end: that is slow."""
REACH = 2.5
"""The same share above which a loss that still falls is no sign of training."""
STUCK = 1.05
"""The same share up to which a run that does not train has found the constant answer and no more."""
LARGE = 5_000_000
"""Parameters from which 3e-4 and 1e-4 are tried first."""
ADAM, ADAM_LARGE = (1e-3, 3e-4, 1e-4, 3e-5), (3e-4, 1e-4, 1e-3, 3e-5)
SGD = (0.1, 0.01)
SETTINGS = {
    "steps": STEPS, "steps where one takes less than 0.05 s": 3 * STEPS, "mean of the last": LAST,
    "trains below": TRAINS, "slow below, or while it still falls": SLOW, "stuck below": STUCK,
    "data": "a fresh batch every step", "images": "16 of 64 x 64 if models.py says nothing else", "clipping": None,
    "adam": ADAM, "sgd, momentum 0.9": SGD,
}  # fmt: skip


def run(name: str, kind: str, rate: float, until: float, steps: int = STEPS) -> dict[str, Any]:
    """One training run, from the weights that ``models.build`` gives."""
    case = models.build(name)
    weights = [p for p in case.model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(weights, rate) if kind == "adam" else torch.optim.SGD(weights, rate, momentum=0.9)
    losses: list[float] = []
    most, began = steps, time.process_time()
    goal = found = float("nan")
    while len(losses) < most:
        optimizer.zero_grad()
        loss = cases.loss_of(case, len(losses))
        losses.append(float(loss.detach()))
        goal = min(losses[0], case.constant)
        if losses[-1] != losses[-1] or losses[-1] == float("inf"):
            return {"rate": rate, "steps": len(losses), "share": None, "outcome": "fails", "why": "loss not finite"}
        found = sum(losses[-LAST:]) / min(LAST, len(losses)) / goal
        if len(losses) >= LAST and found < TRAINS:
            break
        loss.backward()
        optimizer.step()
        if len(losses) == 10 and time.process_time() - began < 10 * QUICK:
            most = 3 * steps
        if time.process_time() > until:
            return {"rate": rate, "steps": len(losses), "share": round(found, 4), "outcome": "unfinished"}
    slow = found < SLOW or (found < REACH and _falling(losses))
    outcome = "trains" if found < TRAINS else "slow" if slow else "fails"
    tenths = [losses[round(i * (len(losses) - 1) / 10)] for i in range(11)]
    curve = [float(f"{loss:.4g}") for loss in tenths]
    return {"rate": rate, "steps": len(losses), "share": round(found, 4), "outcome": outcome, "losses": curve}


def _falling(losses: list[float]) -> bool:
    """Is the loss well below the first and still on its way down at the end?"""
    fifth = len(losses) // 5
    last, before = (sum(part) / fifth for part in (losses[-fifth:], losses[-2 * fifth : -fifth]))
    return last < 0.8 * losses[0] and last < 0.97 * before


def outcome_of(name: str, seconds: float, steps: int = STEPS) -> dict[str, Any]:
    """All that is known of a model: what came of each recipe that was tried, and the best of each kind."""
    case = models.build(name)
    size = sum(p.numel() for p in case.model.parameters())
    found: dict[str, Any] = {"parameters": size, "constant": round(case.constant, 4)}
    found["first loss"] = round(float(cases.loss_of(case, 0).detach()), 4)
    del case
    began = time.process_time()
    for kind, rates, share in (("adam", ADAM if size < LARGE else ADAM_LARGE, 0.6), ("sgd", SGD, 1.0)):
        until = began + seconds * share
        runs = []
        for rate in rates:
            if time.process_time() >= until:
                break
            runs.append(run(name, kind, rate, until, steps))
            if runs[-1]["outcome"] == "trains":
                break
        found[kind] = {"outcome": best_of(runs, len(rates)), "runs": runs}
    found["seconds"] = round(time.process_time() - began, 1)
    return found


def best_of(runs: list[dict[str, Any]], rates: int) -> str:
    """The best outcome of a kind; a loss still on its way to the constant answer counts for nothing where another run
    got stuck there.
    """
    stuck = any(r["outcome"] == "fails" and r["share"] is not None and r["share"] < STUCK for r in runs)
    outcomes = ["fails" if r["outcome"] == "slow" and stuck and r["share"] > 1 else r["outcome"] for r in runs]
    complete = len(runs) == rates and "unfinished" not in outcomes
    return next((o for o in ("trains", "slow") if o in outcomes), "fails" if complete else "unknown")


def save(kept: dict[str, Any]) -> None:
    """Write all outcomes in the order of the zoo, a run a line."""
    ordered = {name: kept[name] for name in {**models.ZOO, **models.BROKEN} if name in kept}
    text = json.dumps({"settings": SETTINGS, "models": ordered}, indent=1)
    text = re.sub(r"\{\s+(\"rate\"[^{}]*)\}", lambda m: "{" + " ".join(m[1].split()) + "}", text)
    OUTCOMES.write_text(text + "\n")


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("only", nargs="?", default="", help="part of a name")
    arguments.add_argument("--again", action="store_true", help="also what is known already")
    arguments.add_argument("--seconds", type=float, default=240.0, help="CPU seconds a model at most")
    arguments.add_argument("--steps", type=int, default=STEPS, help="of a run")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kept = json.loads(OUTCOMES.read_text())["models"] if OUTCOMES.exists() else {}
    for name in {**models.ZOO, **models.BROKEN}:
        if given.only.lower() not in name.lower() or (name in kept and not given.again):
            continue
        try:
            kept[name] = outcome_of(name, given.seconds, given.steps)
        except Exception as problem:
            print(f"{name}: {type(problem).__name__}: {problem}", flush=True)
            continue
        save(kept)
        said = {k: f"{kept[name][k]['outcome']} ({kept[name][k]['runs'][-1]})" for k in ("adam", "sgd")}
        print(f"{name}: adam {said['adam']}, sgd {said['sgd']}, {kept[name]['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
