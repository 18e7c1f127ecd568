"""Training exactly one layer of a network, all others frozen (Raghu section 3.1, Figures 7 and 17).

Whatever happens, all but the layer's own parameters (and buffers of its parametrizations) stays as it is to the bit,
and so do requires_grad, hooks and modes.
"""

from contextlib import ExitStack
from typing import Any

from torch import nn

from epoch0.activity.weights import named_layer
from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.tracing.guard import bare, check_model
from epoch0.train.evaluation import Training
from epoch0.train.loop import train


@checked
def train_one_layer(model: nn.Module, layer: str | int, data: Any, **options: Any) -> Training:
    """Train one layer's weights and bias in place; all other parameters and all buffers stay as they are, to the bit.

    >>> net = e0.networks.mlp([64, *[100] * 3, 10], "hardtanh", weights=e0.Gaussian(1.0), seed=0)
    >>> done = train_one_layer(net, 1, (x, y), epochs=50, evaluate=Accuracy(x, y))     # x (100, 64), y (100,)
    >>> done.steps, done.history[-1]["accuracy"] > 0.9
    (100, True)

    The others are frozen, not taken out: signals and gradients pass through them. Modules with buffers of their own
    (batch norm and its like, spectral norm) compute as in evaluation, with the statistics they have; so a batch norm
    that has never seen a batch is the identity. Dropout acts as in any training.

    The layer is a name, or a number among dense and convolutional ones, from 0; the rest as in
    :func:`epoch0.train.train`.

    Source: Raghu et al. 2017, section 3.1, Figures 7 and 17.
    """
    check_model(model)
    inner = bare(model)
    name = named_layer(inner, layer)
    part = inner.get_submodule(name)
    own, ids = set(part.modules()), {id(parameter) for parameter in part.parameters()}
    for other, module in inner.named_modules():
        shared = [key for key, parameter in module.named_parameters(recurse=False) if id(parameter) in ids]
        if module not in own and shared:
            text = f"layer={name!r} shares its parameters with '{f'{other}.{shared[0]}'.lstrip('.')}'"
            raise InputError(f"{text}; training it would train both. Give one of them weights of its own.")
    with ExitStack() as after:
        for module in inner.modules():
            if module not in own and any(buffer is not None for buffer in module._buffers.values()):
                after.callback(module.register_forward_pre_hook(_as_in_evaluation, prepend=True).remove)
        for parameter in inner.parameters():
            after.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_(id(parameter) in ids)
        return train(model, data, **options)


def _as_in_evaluation(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    # at every call, as the loop puts the whole model in train mode after each evaluation; it gives the modes back
    nn.Module.train(module, False)
