"""A made-up artifact for the tests of the catalogue: it counts heads, and notes each trial it runs in a file."""

import math
from dataclasses import dataclass

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import between
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact


@dataclass(frozen=True)
class Setting:
    log: str
    bias: float = 0.5
    trials: int = 6


def toss(spec, seed):
    with open(spec["log"], "a") as log:
        log.write(f"{seed}\n")
    coins = np.random.default_rng(seed).random(400) < spec["bias"]
    return {"heads": coins.mean()}


def trials(setting):
    spec = {"log": setting.log, "bias": setting.bias}
    return [Trial("toy_artifact:toss", spec, seed) for seed in range(setting.trials)]


def table(setting, results):
    rows = [{"trial": i, "heads": r["heads"], "remark": None} for i, r in enumerate(results)]
    return [*rows, {"trial": -1, "heads": math.nan, "remark": "has no value"}]


def claims(setting, results):
    heads = np.array([r["heads"] for r in results])
    error = heads.std(ddof=1) / len(heads) ** 0.5
    return [between("the coin is fair", heads.mean(), error, 0.4, 0.6, len(heads))]


def draw(setting, results):
    picture, axes = plots.figure()
    axes.plot([r["heads"] for r in results])
    axes.set(xlabel="trial", ylabel="share of heads")
    return picture


def artifact(log, data=None, **setting):
    presets = {name: Setting(str(log), **setting) for name in ("quick", "paper")}
    parts = trials, table, claims, draw, lambda setting: data, lambda setting: "6 coins"
    return OldArtifact("toy/coin", "A coin", "nowhere", presets, *parts)
