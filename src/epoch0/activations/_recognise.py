"""Torch modules and functions that are one of the known activations, told by what they are, without importing torch."""

import sys
from collections.abc import Callable
from typing import Any

from epoch0.activations import _named
from epoch0.activations._rule import Activation

_MODULES: dict[str, Callable[[Any], Activation | None]] = {
    "ReLU": lambda module: _named.relu(),
    "LeakyReLU": lambda module: _named.leaky_relu(module.negative_slope),
    "Hardtanh": lambda module: _named.hardtanh(module.min_val, module.max_val) if _straddles(module) else None,
    "Tanh": lambda module: _named.tanh(),
    "Erf": lambda module: _named.erf(),
    "ELU": lambda module: _named.elu(module.alpha),
    "GELU": lambda module: _named.gelu() if module.approximate == "none" else _named.gelu_tanh(),
    "SiLU": lambda module: _named.silu(),
    "Identity": lambda module: _named.identity(),
    "SELU": lambda module: _named.selu(),
    "CELU": lambda module: _named.celu(module.alpha) if module.alpha > 0 else None,
    "Sigmoid": lambda module: _named.sigmoid(),
    # torch goes over to the line h above threshold / beta; at 20 that is below 3e-9
    "Softplus": lambda module: _named.softplus(module.beta) if module.beta > 0 and module.threshold >= 20 else None,
    "Softsign": lambda module: _named.softsign(),
    "Mish": lambda module: _named.mish(),
    "ReLU6": lambda module: _named.relu6(),
    "Abs": lambda module: _named.absolute(),
    "Hardsigmoid": lambda module: _named.hardsigmoid(),
    "Hardswish": lambda module: _named.hardswish(),
    "Sin": lambda module: _named.sin(),
}

_LIBRARIES = ("torch", "torch.nn.functional", "torch.special", "numpy", "scipy.special")
_OTHER_NAMES = {"absolute": "abs", "expit": "sigmoid", "special_expit": "sigmoid", "special_erf": "erf"}


def _straddles(module: Any) -> bool:
    return bool(module.min_val < 0 < module.max_val)


def known_module(module: object) -> Activation | None:
    """The known activation that a torch module (or one of ours) computes, or None."""
    kind = type(module)
    ours = kind.__module__.startswith(("torch.nn.modules.", "epoch0.networks."))
    rule = _MODULES.get(kind.__name__) if ours else None
    return rule(module) if rule else None


def known_function(function: Any) -> Activation | None:
    """The known activation that a function of torch, numpy or scipy computes with its default arguments, or None."""
    name = getattr(function, "__name__", "")
    rule = _named.KNOWN.get(_OTHER_NAMES.get(name, name))
    for library in _LIBRARIES if rule else ():
        plain = name.removeprefix("special_")
        if library in sys.modules and getattr(sys.modules[library], plain, None) is function:
            return rule() if rule else None
    return None
