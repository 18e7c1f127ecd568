"""A made-up artifact for the tests of the catalogue: it counts heads, and notes each trial it runs in a file."""

import math
from dataclasses import dataclass

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import between
from epoch0.papers.sweep import Artifact, Sweep
from epoch0.papers.tables import Table, by


@dataclass(frozen=True)
class Spec:
    log: str
    bias: float = 0.5
    data: str | None = None


def toss(spec, seed):
    with open(spec.log, "a") as log:
        log.write(f"{seed}\n")
    coins = np.random.default_rng(seed).random(400) < spec.bias
    return {"heads": coins.mean()}


def table(found):
    rows = [{"trial": i, "heads": heads, "remark": None} for i, heads in enumerate(found.one()["heads"].tolist())]
    return Table([*rows, {"trial": -1, "heads": math.nan, "remark": "has no value"}])


def claims(found):
    heads = found.one()["heads"]
    error = heads.std(ddof=1) / len(heads) ** 0.5
    return {"the coin is fair": by(between, heads.mean(), error, 0.4, 0.6, len(heads))}


def draw(found):
    picture, axes = plots.figure()
    axes.plot(found.one()["heads"])
    axes.set(xlabel="trial", ylabel="share of heads")
    return picture


def artifact(log, data=None, bias=0.5):
    sweep = Sweep(toss, Spec(str(log), bias, data), runs=6)
    presets = {"quick": sweep, "paper": sweep}
    return Artifact("toy/coin", "A coin", "nowhere", presets, table, claims, draw, "{runs} coins")
