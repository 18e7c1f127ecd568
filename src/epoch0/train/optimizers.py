"""Settings of the optimizers a run can use, as plain frozen values; torch's own classes do the work."""

from dataclasses import asdict, dataclass

import torch
from torch import nn

from epoch0.errors import InputError, suggest


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, ``torch.optim.SGD``.

    >>> SGD(momentum=0.9)
    SGD(momentum=0.9, weight_decay=0.0, nesterov=False)
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def build(self, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """The torch optimizer of these settings."""
        return torch.optim.SGD(parameters, lr=learning_rate, **asdict(self))


@dataclass(frozen=True)
class Adam:
    """Adam, ``torch.optim.Adam``; its weight decay is a gradient of its own and gets rescaled like one.

    >>> Adam(epsilon=1e-6).beta1
    0.9
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def build(self, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """The torch optimizer of these settings."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(parameters, learning_rate, betas, self.epsilon, self.weight_decay)


@dataclass(frozen=True)
class AdamW:
    """Adam whose weight decay shrinks the weights themselves, ``torch.optim.AdamW``.

    >>> AdamW(weight_decay=0.05).weight_decay
    0.05
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    def build(self, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """The torch optimizer of these settings."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(parameters, learning_rate, betas, self.epsilon, self.weight_decay)


Optimizer = SGD | Adam | AdamW
"""What :func:`epoch0.train.loop.train` takes, beside the plain names."""

OPTIMIZERS: dict[str, Optimizer] = {"sgd": SGD(), "adam": Adam(), "adamw": AdamW()}
"""What the plain names mean."""


def settings_of(optimizer: str | Optimizer) -> Optimizer:
    """The settings behind a name; settings pass through.

    >>> settings_of("sgd")
    SGD(momentum=0.0, weight_decay=0.0, nesterov=False)

    Raises:
        InputError: if there is no such name.
    """
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            known = "'sgd', 'adam' or 'adamw'"
            raise InputError(f"no optimizer is called {optimizer!r}; use {known}.{suggest(optimizer, OPTIMIZERS)}")
        return OPTIMIZERS[optimizer]
    return optimizer


def build(settings: Optimizer, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """The torch optimizer of some settings, with torch's refusal of impossible ones as a plain error.

    Raises:
        InputError: naming the settings that torch refuses.
    """
    try:
        return settings.build(parameters, learning_rate)
    except ValueError as problem:
        raise InputError(f"{settings} cannot be used: {problem}.") from problem
