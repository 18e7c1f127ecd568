"""Networks made by hand with as many linear regions as depth can buy (Telgarsky 2015; Montufar et al. 2014)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from epoch0.arguments import Size, check_memory, checked
from epoch0.errors import InputError
from epoch0.networks.nonlinearities import Dtype


@checked
def sawtooth(depth: Size, *, dtype: Dtype = torch.float32) -> nn.Sequential:
    """Telgarsky's sawtooth: a tent on [0, 1] applied again and again, 2^depth linear pieces from 2 depth neurons.

    >>> net = sawtooth(5)
    >>> net(torch.tensor([[0.0], [1 / 32], [2 / 32]])).flatten()         # (points, 1) -> (points, 1)
    tensor([0., 1., 0.], grad_fn=...)

    It goes from 0 to 1 and back 2^(depth - 1) times on [0, 1]; the pieces have slope 2^depth up and down in turn and
    meet at the multiples of 2^-depth. All weights are integers, so it is exact in every dtype.

    Source: Telgarsky 2015; Hanin and Rolnick 2019, Figure 3.
    """
    return folding(1, [2] * depth, dtype=dtype)


@checked
def folding(inputs: Size, folds: Sequence[Size], *, dtype: Dtype = torch.float32) -> nn.Sequential:
    """Montufar's folding network: each layer folds every side of the cube [0, 1]^inputs onto itself several times.

    >>> net = folding(2, [3, 3])                                          # 2-6-6-2, linear output
    >>> regions.count(net, torch.tensor([[0., 0.], [1., 0.], [1., 1.], [0., 1.]]))   # (3 * 3)^2 squares
    81

    A layer that folds a side p times uses p neurons for it. The network is the folded point itself, with
    product(folds)^inputs linear regions in the cube; whatever follows it sees so many copies of the cube.

    The layers are inputs - inputs * folds[0] - ... - inputs, their weights integers.

    Source: Montufar et al. 2014, section 3; Raghu et al. 2017, section 2.2.
    """
    if not folds:
        raise InputError(f"folds={folds!r}: each folding layer folds a side once or more: [2, 2].")
    check_memory("this network", 2.0 * inputs**2 * sum(p**2 for p in folds), 8)
    eye = torch.eye(inputs, dtype=torch.float64)
    out: Tensor = eye  # the folded point, from the neurons of the layer before
    layers: list[nn.Module] = []
    for p in folds:
        weight = torch.kron(eye, torch.full((p, 1), float(p), dtype=torch.float64))
        layers += [_linear(weight @ out, -torch.arange(p, dtype=torch.float64).repeat(inputs), dtype), nn.ReLU()]
        out = torch.kron(eye, torch.tensor([[1.0] + [2.0 * (-1) ** j for j in range(1, p)]], dtype=torch.float64))
    return nn.Sequential(*layers, _linear(out, torch.zeros(inputs), dtype))


def _linear(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> nn.Linear:
    layer: nn.Linear = skip_init(nn.Linear, weight.shape[1], weight.shape[0], dtype=dtype)  # draws no random numbers
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer
