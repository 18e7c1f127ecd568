"""A batch to initialize on where the user gives none: Gaussian of unit variance, of a shape that the model takes."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing.guard import bare, check_model, unchanged

SIZES = (32, 28, 64, 224, 96, 128, 16, 8, 256, 299)
"""Sides of images, in the order in which they are tried."""

EXAMPLES, IMAGES = 64, 16

_INPUT = 4


def gaussian_input(model: nn.Module, seed: int) -> Tensor:
    """A batch of Gaussian inputs that the model takes.

    >>> gaussian_input(nn.Sequential(nn.Linear(20, 5), nn.ReLU()), 0).shape
    torch.Size([64, 20])

    Args:
        model: its first linear map or convolution says how many features or channels the input has; sides of images
            are tried.
        seed: of the numbers.

    Raises:
        InputError: if no shape is found.
    """
    model = bare(model)
    check_model(model)
    parameter = next(p for p in model.parameters() if p.is_floating_point())
    for shape in _shapes(model):
        x = torch.randn(shape, generator=generator(seed, _INPUT)).to(parameter)
        try:
            with unchanged(model), torch.no_grad():
                model.eval()(x)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError):
            continue
        return x
    raise InputError(
        f"no input shape was found that the model {type(model).__name__} takes; "
        "give a batch: x=..., shape (examples, ...)."
    )


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            yield EXAMPLES, module.in_features
            yield EXAMPLES, 16, module.in_features
            return
        if isinstance(module, nn.modules.conv._ConvNd):
            dims = len(module.kernel_size)
            for size in SIZES if dims < 3 else (16, 8, 32):
                yield (IMAGES if size <= 64 else 4), module.in_channels, *[size] * dims
            return
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            yield EXAMPLES, module.num_features
            for size in SIZES:
                yield IMAGES, module.num_features, size, size
            return
        if isinstance(module, nn.LayerNorm):
            yield EXAMPLES, *module.normalized_shape
            yield EXAMPLES, 16, *module.normalized_shape
            return
    for parameter in model.parameters():
        if parameter.dim() == 2:  # x @ W or W x, in a module of the user's own
            yield EXAMPLES, parameter.shape[0]
            yield EXAMPLES, parameter.shape[1]
            return
