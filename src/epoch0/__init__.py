"""Know your network before epoch 1: measure, predict and set what a neural network is at initialization.

>>> import epoch0 as e0
>>> net = e0.networks.mlp([64, 100, 100, 10], seed=0)
>>> print(e0.checkup(net, torch.randn(100, 64)).verdict)
Trains with either, Adam at a rate of about 0.003 or SGD at 0.01.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Module -> the public names that it holds. Names are looked up on first use, so that `import epoch0` and the help of
# the command line do not wait for torch.
_NAMES = {
    "errors": "InputError",
    "distributions": "Law Gaussian Uniform Discrete Sparse",
    "curves": "Line Arc GreatCircle SemicircularArcs Polyline",
    "measure.length": "trajectory_length",
    "measure.gain": "gain",
    "activity": "transitions activation_patterns dichotomies robustness",
    "initialization": "initialize",
    "train": "train_one_layer TrajectoryRegularization replace_batch_norm",
    "diagnosis": "checkup",
    "papers.reproduce": "reproduce",
}
_HOMES = {name: f"epoch0.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = ["Arc", "Discrete", "Gaussian", "GreatCircle", "InputError", "Law", "Line", "Polyline", "SemicircularArcs"]
__all__ += ["Sparse", "TrajectoryRegularization", "Uniform", "activation_patterns", "activations", "activity"]
__all__ += ["checkup", "curves", "data", "dichotomies", "distributions", "errors", "experiments", "gain"]
__all__ += ["initialization", "initialize", "integrations", "lightning", "measure", "networks", "papers", "prune"]
__all__ += ["regions", "replace_batch_norm", "reproduce", "robustness", "seeds", "theory", "train", "train_one_layer"]
__all__ += ["trajectory_length", "transitions"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'epoch0' has no attribute {name!r}")
    import random

    stream = random.getstate()  # some libraries draw while they are imported
    value = importlib.import_module(_HOMES.get(name, f"epoch0.{name}"))
    globals()[name] = value = getattr(value, name) if name in _HOMES else value
    random.setstate(stream)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if TYPE_CHECKING:
    from epoch0 import activations, activity, curves, data, distributions, errors, experiments  # noqa: I001
    from epoch0 import initialization, integrations, lightning, measure, networks, papers, prune, regions, seeds
    from epoch0 import theory, train
    from epoch0.activity.dichotomies import dichotomies
    from epoch0.activity.patterns import activation_patterns
    from epoch0.activity.transitions import transitions
    from epoch0.activity.weights import robustness
    from epoch0.curves import Arc, GreatCircle, Line, Polyline, SemicircularArcs
    from epoch0.diagnosis.checkup import checkup
    from epoch0.distributions import Discrete, Gaussian, Law, Sparse, Uniform
    from epoch0.errors import InputError
    from epoch0.initialization.initialize import initialize
    from epoch0.measure.gain import gain
    from epoch0.measure.length import trajectory_length
    from epoch0.papers.reproduce import reproduce
    from epoch0.train.raghu import TrajectoryRegularization, replace_batch_norm, train_one_layer
