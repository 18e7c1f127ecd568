"""Scores of weights: the larger, the more worth keeping (Hayou et al. 2021, section 2.1)."""

from collections.abc import Callable
from typing import NamedTuple

from epoch0.prune.scores.gradients import force, grasp, obd, snip
from epoch0.prune.scores.scores import Scores, magnitude, random
from epoch0.prune.scores.synaptic_flow import synflow


class Listed(NamedTuple):
    """A score as the command line calls it."""

    function: Callable[..., Scores]
    takes: tuple[str, ...] = ()  # beside the model; one that takes steps does all of them in one call
    rounds: int = 1  # of scores that its authors repeat


_LOSS = ("batches", "batch_norm")
TABLE = {
    "magnitude": Listed(magnitude),
    "random": Listed(random, ("seed",)),
    "snip": Listed(snip, _LOSS),
    "force": Listed(force, (*_LOSS, "sparsity", "steps", "progress"), 60),
    "grasp": Listed(grasp, _LOSS),
    "obd": Listed(obd, _LOSS),
    "synflow": Listed(synflow, ("x",), 100),
}
