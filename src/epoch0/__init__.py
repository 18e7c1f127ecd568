"""Know your network before epoch 1: measure, predict and set what a neural network is at initialization.

>>> import epoch0 as e0
>>> net = e0.networks.mlp([64, 100, 100, 10], seed=0)
>>> print(e0.checkup(net, torch.randn(100, 64)).verdict)
Trains with either, Adam at a rate of about 0.003 or SGD at 0.1.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Public name -> the module that holds it. Names are looked up on first use, so that `import epoch0` and the help of
# the command line do not wait for torch.
_HOMES = {
    name: f"epoch0.{home}"
    for home, names in {
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
    }.items()
    for name in names.split()
}
_MODULES = ("activations", "activity", "curves", "data", "distributions", "errors", "experiments",
            "initialization", "integrations", "lightning", "measure", "networks", "papers", "prune", "regions",
            "seeds", "theory", "train")  # fmt: skip

__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"epoch0.{name}")
    else:
        raise AttributeError(f"module 'epoch0' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if TYPE_CHECKING:
    from epoch0 import activations as activations
    from epoch0 import activity as activity
    from epoch0 import curves as curves
    from epoch0 import data as data
    from epoch0 import distributions as distributions
    from epoch0 import errors as errors
    from epoch0 import experiments as experiments
    from epoch0 import initialization as initialization
    from epoch0 import integrations as integrations
    from epoch0 import lightning as lightning
    from epoch0 import measure as measure
    from epoch0 import networks as networks
    from epoch0 import papers as papers
    from epoch0 import prune as prune
    from epoch0 import regions as regions
    from epoch0 import seeds as seeds
    from epoch0 import theory as theory
    from epoch0 import train as train
    from epoch0.activity.dichotomies import dichotomies as dichotomies
    from epoch0.activity.patterns import activation_patterns as activation_patterns
    from epoch0.activity.robustness import robustness as robustness
    from epoch0.activity.transitions import transitions as transitions
    from epoch0.curves import Arc as Arc
    from epoch0.curves import GreatCircle as GreatCircle
    from epoch0.curves import Line as Line
    from epoch0.curves import Polyline as Polyline
    from epoch0.curves import SemicircularArcs as SemicircularArcs
    from epoch0.diagnosis.checkup import checkup as checkup
    from epoch0.distributions import Discrete as Discrete
    from epoch0.distributions import Gaussian as Gaussian
    from epoch0.distributions import Law as Law
    from epoch0.distributions import Sparse as Sparse
    from epoch0.distributions import Uniform as Uniform
    from epoch0.errors import InputError as InputError
    from epoch0.initialization.initialize import initialize as initialize
    from epoch0.measure.gain import gain as gain
    from epoch0.measure.length import trajectory_length as trajectory_length
    from epoch0.papers.reproduce import reproduce as reproduce
    from epoch0.train.single_layer import train_one_layer as train_one_layer
    from epoch0.train.trajectory_regularization import TrajectoryRegularization as TrajectoryRegularization
    from epoch0.train.trajectory_regularization import replace_batch_norm as replace_batch_norm
