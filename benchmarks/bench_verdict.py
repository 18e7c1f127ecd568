"""How often the verdict is right: networks whose outcome is known, cross-validated; ``--fit`` writes its weights.

Two samples: the networks of the folder EPOCH0_VERDICT, and those that ``random_networks.py`` draws. ``--measure`` looks
at each of them anew (about an hour of CPU time, most of it trainings) and writes what a verdict reads to
``verdict_numbers.json``; everything else is computed from that file. The folder holds ``networks.py`` (``CONFIGS``,
``make``, ``load``, ``train``) and ``outcomes.json`` (test accuracy of each network by recipe).
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import minimize

HERE = Path(__file__).parent
NUMBERS = HERE / "verdict_numbers.json"
FITTED = HERE.parent / "src" / "epoch0" / "diagnosis" / "fitted.json"

EXAMPLES = 128
LENGTHS = (30, 60, 150)
RECIPES = {"adam": ("adam3e-4", "adam1e-3", "adam3e-3"), "sgd": ("sgd0.01", "sgd0.1")}
RATES = {"adam3e-4": 3e-4, "adam1e-3": 1e-3, "adam3e-3": 3e-3, "sgd0.01": 0.01, "sgd0.1": 0.1}
FOLDS, REPEATS = 10, 20

STEP = {
    "adam": ("alignment", "second pace", "reached", "growth", "gradient growth", "small input"),
    "sgd": ("second", "adam alignment", "crawl", "change", "gradient growth", "small input", "dissimilarity"),
}
"""What the verdict reads of the first step; chosen on the same networks, which flatters: see docs/checkup.md."""

BESIDE = {
    "adam": ("held", "reached", "growth", "small input"),
    "sgd": ("second", "second held", "crawl", "change", "small input", "dissimilarity"),
}
"""What it still reads of the first step where there was a trial."""

ALONE = {"held": "alignment", "second held": "second"}
"""What is read in its place where nothing was held out."""

TRIAL = {
    "adam": ("known", "known seen", "fell", "learned"),
    "sgd": ("known", "known seen", "fell", "learned", "learned by adam"),
}
AGAINST = ("change", "growth", "gradient growth")
"""A number can only count for training, these only against it: no weight of the fit has another sign."""

PENALTY = 2.0
"""Of the squared weights of the standardized numbers, against the sum of log losses."""


def look(model, x, y) -> dict:
    """What the verdict reads of one network."""
    import torch

    from epoch0.diagnosis.rows import measured
    from epoch0.diagnosis.step import OPTIMIZERS, steps
    from epoch0.diagnosis.trial import HELD, kernel_knows, trial
    from epoch0.diagnosis.verdict import step_numbers
    from epoch0.seeds import generator
    from epoch0.tracing.call import Call
    from epoch0.tracing.tape import tape

    call = Call.of(model, x, y)
    began = time.process_time()
    first, quick = steps(call), steps(call, quick=True)
    with tape(call) as record:
        signs = measured(record, 4, 0).signs
    step_seconds = time.process_time() - began
    found = {n: trial(call, n, settled=False).runs for n in LENGTHS}
    order, count = torch.randperm(call.examples, generator=generator(0, 0x7472)), call.examples // HELD
    kept = ("optimizer", "rate", "known", "known_seen", "drop", "held")
    return {
        "step": {name: step_numbers(first[name], signs, first["adam"]) for name in OPTIMIZERS},
        "quick": {name: step_numbers(quick[name], signs, quick["adam"]) for name in OPTIMIZERS},
        "largest": {name: first[name].largest for name in OPTIMIZERS},
        "kernel": kernel_knows(call.rows(order[count:]), call.rows(order[:count]), 0),
        "seconds": [step_seconds, time.process_time() - began - step_seconds],
        "runs": {str(n): [{key: getattr(run, key) for key in kept} for run in runs] for n, runs in found.items()},
    }


def measure(folder: Path, numbers: Path) -> None:
    """Look at every network, and keep what was seen after each; train random ones that are new."""
    import torch

    sys.path.insert(0, str(folder))
    import random_networks

    import networks

    torch.set_num_threads(1)
    known = json.loads(numbers.read_text()) if numbers.exists() else {}
    data, truth = networks.load(), json.loads((folder / "outcomes.json").read_text())
    pick = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(0))[:EXAMPLES]
    kept = {}
    for name, (family, _, _) in networks.CONFIGS.items():
        model, x, _ = networks.make(name, data)
        kept[name] = {"family": family, "accuracy": truth[name], **look(model, x[pick], data[1][pick])}
        numbers.write_text(json.dumps(known | kept))
    sets = {name: random_networks.inputs_of(name, networks) for name in random_networks.BARS}
    for number in random_networks.NUMBERS:
        x, y, tx, ty = sets[data_set := random_networks.data_set(number)]
        model, scale, name, family = random_networks.build(number, networks)
        if name in known:
            accuracy = known[name]["accuracy"]
        else:
            steps, recipes = random_networks.STEPS, networks.RECIPES
            runs = {r: networks.train(model, x * scale, y, tx * scale, ty, r, steps) for r in recipes}
            accuracy = {recipe: run["acc"] for recipe, run in runs.items()}
        seed = number if number >= 8000 else 0
        pick = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:EXAMPLES]
        seen = look(model, x[pick] * scale, y[pick])
        kept[name] = {"family": family, "bar": random_networks.BARS[data_set], "accuracy": accuracy, **seen}
        fresh = (number >= random_networks.FRESH) + (number in random_networks.LAST)
        kept[name] |= {"fresh": 3 if number in random_networks.HARD else fresh, "data": data_set}
        numbers.write_text(json.dumps(known | kept))


def load(fresh: int = 0) -> list[dict]:
    """The networks that weights are fitted to, those drawn afterwards, after all choices, or of hard data."""
    return [one for one in json.loads(NUMBERS.read_text()).values() if one.get("fresh", 0) == fresh]


def outcome(network: dict, optimizer: str) -> bool:
    """Whether it trained with one of the optimizer's rates."""
    bar = network.get("bar", 0.8)
    return max(network["accuracy"][recipe] for recipe in RECIPES[optimizer]) > bar


def names_of(optimizer: str, level: str) -> tuple[str, ...]:
    """The numbers that a level reads."""
    alone = level.endswith("alone")
    table = STEP if level.startswith("step") else BESIDE
    step = dict.fromkeys(ALONE.get(name, name) if alone else name for name in table[optimizer])
    return (
        *step,
        *(() if level.startswith("step") else (name for name in TRIAL[optimizer] if not (alone and name != "fell"))),
    )


BASES = ("step 0", "step 0 quick", *(f"trial {length}" for length in LENGTHS))
LEVELS = [f"{base}{rest}" for base in BASES for rest in ("", " alone")]


def table(networks: list[dict], optimizer: str, level: str) -> np.ndarray:
    """One row a network."""
    rows = []
    for one in networks:
        numbers = dict(one["quick" if "quick" in level else "step"][optimizer])
        if level.startswith("trial"):
            numbers |= read(one, optimizer, level.split()[1])
        rows.append([numbers[name] for name in names_of(optimizer, level)])
    return np.array(rows, dtype=float)


def read(one: dict, optimizer: str, length: str) -> dict[str, float]:
    """What is read of the trial."""
    from epoch0.diagnosis.trial import Run
    from epoch0.diagnosis.verdict import trial_numbers

    return trial_numbers([Run(losses=(1.0,), **run) for run in one["runs"][length]], optimizer)


def fit(x: np.ndarray, y: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, float]:
    """Weights and intercept of a logistic regression with a penalty on standardized weights, each of its own sign."""
    mean, scale = x.mean(0), np.maximum(x.std(0), 1e-9)
    z, sign = (x - mean) / scale, np.where(y, 1.0, -1.0)

    def cost(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (z @ w[:-1] + w[-1])
        pull = -sign / (1 + np.exp(np.clip(margin, -40, 40)))
        value = np.logaddexp(0, -margin).sum() + PENALTY * (w[:-1] ** 2).sum() / 2
        return value, np.append(z.T @ pull + PENALTY * w[:-1], pull.sum())

    bounds = [(None, 0) if name in AGAINST else (0, None) for name in names] + [(None, None)]
    w = minimize(cost, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = w[:-1] / scale
    return weights, float(w[-1] - weights @ mean)


def chances(x: np.ndarray, weights: np.ndarray, intercept: float) -> np.ndarray:
    """Probability of each row."""
    return 1 / (1 + np.exp(-np.clip(x @ weights + intercept, -40, 40)))


def validated(x: np.ndarray, y: np.ndarray, names: Sequence[str], groups: np.ndarray | None = None) -> np.ndarray:
    """Chances from fits that have not seen the network: ten-fold over many partitions, or leaving out each group."""
    found = []
    for repeat in range(1 if groups is not None else REPEATS):
        p = np.empty(len(y))
        order = np.random.default_rng(repeat).permutation(len(y))
        folds = [np.flatnonzero(groups == g) for g in np.unique(groups)] if groups is not None else []
        for fold in folds or np.array_split(order, FOLDS):
            rest = np.setdiff1d(np.arange(len(y)), fold)
            p[fold] = chances(x[fold], *fit(x[rest], y[rest], names))
        found.append(p)
    return np.array(found)


def figures(p: np.ndarray, y: np.ndarray) -> str:
    """Share that is right, area under the curve, and how many that train are called hard."""
    right, areas = ((p > 0.5) == y).mean(), np.mean([area(one, y) for one in p])
    return f"{right:.3f} {areas:.3f} {((p <= 0.5) & y).sum(1).mean():4.1f}"


def area(p: np.ndarray, y: np.ndarray) -> float:
    """Share of pairs in the right order."""
    good, bad = p[y], p[~y]
    return float((good[:, None] > bad).mean() + 0.5 * (good[:, None] == bad).mean())


def write(networks: list[dict], path: Path) -> None:
    """Fit on all networks and write the weights, a line a level."""
    fitted = {}
    for optimizer in RECIPES:
        y = np.array([outcome(one, optimizer) for one in networks])
        for level in LEVELS:
            weights, intercept = fit(table(networks, optimizer, level), y, names_of(optimizer, level))
            named = zip(names_of(optimizer, level), weights, strict=True)
            fitted.setdefault(optimizer, {})[level] = {
                "intercept": round(intercept, 4), **{name: round(float(w), 4) for name, w in named}
            }  # fmt: skip
    levels = {
        optimizer: ",\n".join(f"  {json.dumps(name)}: {json.dumps(weights)}" for name, weights in of.items())
        for optimizer, of in fitted.items()
    }
    path.write_text("{\n" + ",\n".join(f' "{name}": {{\n{rows}\n }}' for name, rows in levels.items()) + "\n}\n")


def rates(networks: list[dict], length: int) -> tuple[float, int]:
    """Share of the networks that train with Adam where the suggested rate ends within 3 points of the best rate."""
    from epoch0.diagnosis.trial import Run
    from epoch0.diagnosis.verdict import best_run

    good = []
    for one in networks:
        if not outcome(one, "adam"):
            continue
        runs = [Run(losses=(1.0,), **run) for run in one["runs"][str(length)] if run["optimizer"] == "adam"]
        rate = best_run(runs).rate
        reached = {RATES[recipe]: one["accuracy"][recipe] for recipe in RECIPES["adam"]}
        good.append(reached[rate] >= max(reached.values()) - 0.03)
    return float(np.mean(good)), len(good)


def untold(networks: list[dict], length: int = 150) -> None:
    """Where held-out examples tell nothing: the verdict with them and without, for bars nearer to chance and further.

    Nothing here is fitted; the limit TELLS was chosen on the first 82 of them.
    """
    from epoch0.diagnosis.trial import TELLS
    from epoch0.diagnosis.verdict import probability

    for data in sorted({one["data"] for one in networks}):
        found: dict[float, list[tuple[bool, bool, bool]]] = {0.9: [], 0.7: [], 0.5: []}
        for one in networks:
            best = max(run["known"] or 0 for run in one["runs"][str(length)])
            if one["data"] != data or max(best, one["kernel"]) >= TELLS:
                continue
            for optimizer in RECIPES:
                numbers = one["step"][optimizer] | read(one, optimizer, str(length))
                said = [probability(optimizer, numbers, f"trial {length}{rest}") > 0.5 for rest in ("", " alone")]
                reached = max(one["accuracy"][recipe] for recipe in RECIPES[optimizer])
                for share, rows in found.items():
                    rows.append((*said, reached > 0.1 + share / 0.9 * (one["bar"] - 0.1)))
        for share, rows in found.items():
            for what, place in (("with", 0), ("without", 1)) if rows else ():
                yes, no = ([truth for *said, truth in rows if said[place] is answer] for answer in (True, False))
                text = f"says trains of {len(yes)}, right {sum(yes)}; not of {len(no)}, wrong {sum(no)}"
                print(
                    f"{data:9} above {share:.1f} of what is reached beyond chance, {what:7} held-out examples: {text}"
                )


def main() -> None:
    """Print how often the verdict is right."""
    if not NUMBERS.exists():
        print(f"verdict: {NUMBERS.name} is missing; EPOCH0_VERDICT=FOLDER python {Path(__file__).name} --measure")
        return
    networks = load()
    families = np.array([one["family"] for one in networks])
    drawn = np.array([family.startswith("random") for family in families])
    samples = {"chosen by hand": ~drawn, "drawn at random": drawn}
    print("the verdict: share right, area under the curve, networks that train and are called hard; ten-fold over all,")
    print("in brackets the share right when the network's family was left out of the fit")
    for optimizer in RECIPES:
        y = np.array([outcome(one, optimizer) for one in networks])
        for level in LEVELS:
            if level.endswith("alone"):
                continue
            x = table(networks, optimizer, level)
            names = names_of(optimizer, level)
            p, apart = validated(x, y, names), validated(x, y, names, families)
            for name, chosen in samples.items():
                guess = max(y[chosen].mean(), 1 - y[chosen].mean())
                line = f"{optimizer:5}{level:13} {chosen.sum():4} {name} (guess {guess:.3f})"
                left = ((apart[:, chosen] > 0.5) == y[chosen]).mean()
                print(f"{line:52} {figures(p[:, chosen], y[chosen])} ({left:.3f})")
            for fresh, when in ((load(1), "after the fit"), (load(2), "at last")):
                after = np.array([outcome(one, optimizer) for one in fresh])
                p = chances(table(fresh, optimizer, level), *fit(x, y, names))[None]
                guess = max(after.mean(), 1 - after.mean())
                line = f"{optimizer:5}{level:13} {len(fresh):4} drawn {when} (guess {guess:.3f})"
                print(f"{line:52} {figures(p, after)}")
    untold(load(3))
    networks = [one for one, random in zip(networks, drawn, strict=True) if not random]
    for length in LENGTHS:
        share, count = rates(networks, length)
        what = f"the rate of a trial of {length} steps ends within 3 points of the best of three"
        print(f"{what}: {share:.3f} of {count}")
    seconds = np.array([one["seconds"] for one in networks if "seconds" in one])
    if len(seconds):
        step, trial = seconds[:, 0], seconds[:, 1]
        print(
            f"CPU seconds: first step and gains {np.median(step):.2f} (at most {step.max():.2f}), "
            f"trial of 150 steps {np.median(trial):.1f} (at most {trial.max():.1f})"
        )


if __name__ == "__main__":
    if "--measure" in sys.argv:
        folder = os.environ.get("EPOCH0_VERDICT")
        if not folder:
            sys.exit("set EPOCH0_VERDICT to the folder with networks.py and outcomes.json")
        measure(Path(folder), NUMBERS)
    if "--fit" in sys.argv:
        write(load(), FITTED)
    main()
