"""The residual network of the theory, y + F(y) with one layer a block, plain or stable (Hayou section 3)."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from epoch0.activations import Activation
from epoch0.distributions import Law
from epoch0.networks._parts import check_count, check_inputs, parts
from epoch0.networks.convolutional import check_kernel, readout
from epoch0.networks.residual_blocks import Rung


def residual_chain(
    blocks: int = 15,
    width: int = 100,
    inputs: Sequence[int] = (784,),
    stable: bool = False,
    classes: int | None = 10,
    activation: str | Activation = "relu",
    weights: Law | None = None,
    biases: Law | None = None,
    kernel: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """A residual network as the theorems have it: fully connected, or convolutional with circular padding.

    >>> net = residual_chain(50, 300, inputs=(784,), stable=True)
    >>> net(torch.zeros(5, 784)).shape                          # (batch, inputs) -> (batch, classes)
    torch.Size([5, 10])
    >>> residual_chain(50, 32, inputs=(3, 8, 8))(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 10])

    One layer leads from the input to y; then each block adds W phi(y) + b. With ReLU and wide layers the variance of y
    grows (1 + sigma_w^2/2)-fold a block, twofold with He's law. ``stable=True`` divides every branch by sqrt(blocks):
    from the first y to the last it grows (1 + sigma_w^2/(2 blocks))^blocks-fold, below e with He's law at any depth.

    Args:
        blocks: residual blocks, >= 1.
        width: neurons, or channels, of every layer.
        inputs: shape of one input: (features,), (channels, length) or (channels, height, width).
        stable: whether branches are divided by sqrt(blocks).
        classes: outputs of the layer at the end, behind one more nonlinearity; None ends with y.
        activation: a name of :mod:`epoch0.activations`, or an activation.
        weights: law of a weight before the division by sqrt(fan_in); None is ``Gaussian(sqrt 2)``, He's law.
        biases: law of a bias; None is zero.
        kernel: of the convolutions, odd.
        seed: names the draw; stable or not, the weights are the same.
        dtype: torch.float32 or torch.float64.

    Raises:
        InputError: naming the argument that cannot be used.

    Source: Hayou et al. 2021, section 3, Theorem 2 and Propositions 2 and 3.
    """
    check_count("blocks", blocks, "the number of residual blocks")
    check_count("width", width, "the number of neurons or channels")
    shape = check_inputs(inputs, (784,), dims=(0, 1, 2))
    dims = len(shape) - 1
    if dims:
        check_kernel(kernel, shape[1:])
    if classes is not None:
        check_count("classes", classes, "the number of outputs")
    chosen = parts(activation, weights, biases, None, "circular", dtype, seed)

    def layer(before: int) -> nn.Module:
        return chosen.convolution(before, width, kernel, dims=dims) if dims else chosen.linear(before, width)

    scale = 1.0 / math.sqrt(blocks) if stable else 1.0
    rungs = [Rung(chosen.nonlinearity(), layer(width), scale) for _ in range(blocks)]
    end = [] if classes is None else readout(chosen, (width, *shape[1:]), classes)
    return chosen.fill(nn.Sequential(layer(shape[0]), *rungs, *end), seed)
