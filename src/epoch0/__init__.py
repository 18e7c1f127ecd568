"""Know your network before epoch 1: measure, predict and set what a neural network is at initialization.

>>> import epoch0 as e0
>>> net = e0.networks.mlp([784, 256, 256, 10], seed=0)
>>> print(e0.checkup(net, torch.randn(64, 784)).verdict)
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that holds it. Names are looked up on first use, so that `import epoch0` and the help of
# the command line do not wait for torch.
_HOMES = {
    "InputError": "epoch0.errors",
    "Law": "epoch0.distributions",
    "Gaussian": "epoch0.distributions",
    "Uniform": "epoch0.distributions",
    "Discrete": "epoch0.distributions",
    "Sparse": "epoch0.distributions",
    "Line": "epoch0.curves",
    "Arc": "epoch0.curves",
    "GreatCircle": "epoch0.curves",
    "SemicircularArcs": "epoch0.curves",
    "Polyline": "epoch0.curves",
    "trajectory_length": "epoch0.measure.length",
    "gain": "epoch0.measure.gain",
    "checkup": "epoch0.checkup",
    "reproduce": "epoch0.papers.reproduce",
}
_MODULES = ("activations", "curves", "data", "distributions", "errors", "experiments", "measure", "networks", "papers",
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
    from epoch0 import (
        activations,
        curves,
        data,
        distributions,
        errors,
        experiments,
        measure,
        networks,
        papers,
        seeds,
        theory,
        train,
    )
    from epoch0.checkup import checkup
    from epoch0.curves import Arc, GreatCircle, Line, Polyline, SemicircularArcs
    from epoch0.distributions import Discrete, Gaussian, Law, Sparse, Uniform
    from epoch0.errors import InputError
    from epoch0.measure.gain import gain
    from epoch0.measure.length import trajectory_length
    from epoch0.papers.reproduce import reproduce
