"""Slow twins of the mean-field theory: wide random networks in plain torch, one seed a network, and nothing of ours.

A network is a pair of inputs and a tangent at the first of them, sent together through unit Gaussian matrices; several
settings share each matrix, scaled. The inputs are sign patterns, so that their mean squares and products are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0.seeds import generator

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "elu": F.elu,
    "hardtanh": F.hardtanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "identity": lambda h: h,
}


@dataclass(frozen=True)
class Setting:
    """One activation at one point of its phase diagram."""

    activation: str
    weight_std: float
    bias_std: float
    word: str = ""

    def __str__(self) -> str:
        return f"{self.activation} {self.word} ({self.weight_std:.4f}, {self.bias_std:g})"


@dataclass(frozen=True)
class Seen:
    """What the networks did, each of shape (settings, networks, depth).

    ``q1``, ``q2`` and ``c`` are those of the pre-activations of layers 1 .. depth (mean over units), ``chi`` the mean
    squared stretch of the travelling tangent by activation and weights, seen after the activation: ``chi[..., l]`` is
    |dz_(l+1)|^2 / |dz_l|^2 with dz the tangent after the activation of layer l, the input for l = 0.
    """

    q1: Tensor
    q2: Tensor
    c: Tensor
    chi: Tensor


def slope(function: Callable[[Tensor], Tensor], h: Tensor) -> tuple[Tensor, Tensor]:
    """phi(h) and phi'(h), the latter by autograd."""
    h = h.detach().requires_grad_()
    value = function(h)
    (derivative,) = torch.autograd.grad(value.sum(), h)
    return value.detach(), derivative


def pair_of_inputs(width: int, c: float) -> Tensor:
    """Shape (width, 3): two inputs of mean square 1 and mean product c, and a tangent at right angles to both."""
    ones = torch.ones(width // 4, dtype=torch.float64)
    second = torch.cat([ones, -ones, ones, -ones])
    return torch.stack(
        [torch.ones_like(second), c + (1 - c * c) ** 0.5 * second, torch.cat([ones, ones, -ones, -ones])], dim=1
    )


def dense(
    settings: Sequence[Setting],
    width: int,
    depth: int,
    networks: int,
    *,
    c: float = 0.5,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Seen:
    """Fully connected networks of one width, inputs as wide as the layers."""
    start = pair_of_inputs(width, c).to(dtype)
    weight_std = torch.tensor([s.weight_std for s in settings], dtype=dtype)[None, :, None]
    bias_std = torch.tensor([s.bias_std for s in settings], dtype=dtype)[None, :, None]
    groups: dict[str, list[int]] = {}
    for index, setting in enumerate(settings):
        groups.setdefault(setting.activation, []).append(index)
    rows: list[Tensor] = []
    matrix = torch.empty(width, width, dtype=dtype)
    for network in range(networks):
        random = generator(seed, network)
        z = start[:, None, :].repeat(1, len(settings), 1)
        layers = []
        for _ in range(depth):
            matrix.normal_(generator=random)
            bias = torch.randn(width, 1, generator=random, dtype=dtype)
            h = weight_std * (matrix @ z.flatten(1)).view_as(z) / width**0.5
            h[:, :, :2] += (bias_std * bias[:, :, None]).expand(-1, -1, 2)
            before = z[:, :, 2].double().square().mean(0)
            for name, where in groups.items():
                value, derivative = slope(FUNCTIONS[name], h[:, where, :2])
                z[:, where, :2] = value
                z[:, where, 2] = derivative[:, :, 0] * h[:, where, 2]
            wide = h.double()
            q1, q2 = wide[:, :, 0].square().mean(0), wide[:, :, 1].square().mean(0)
            product = (wide[:, :, 0] * wide[:, :, 1]).mean(0)
            chi = z[:, :, 2].double().square().mean(0) / before
            layers.append(torch.stack([q1, q2, product / (q1 * q2).sqrt(), chi]))
        rows.append(torch.stack(layers, dim=-1))
    return Seen(*torch.stack(rows, dim=2).unbind(0))


def residual(
    setting: Setting, width: int, depth: int, networks: int, *, scale: float = 1.0, c: float = 0.5, seed: int = 0
) -> Seen:
    """Networks y_0 = x, y_l = y_(l-1) + scale * (W_l phi(y_(l-1)) + b_l); q, c of y_0 .. y_depth, chi per block."""
    function = FUNCTIONS[setting.activation]
    rows = []
    for network in range(networks):
        random = generator(seed, network)
        # sign patterns are no Gaussians: a first matrix makes the entries of y_0 Gaussian
        first = torch.randn(width, width, generator=random, dtype=torch.float64) / width**0.5
        y = first @ pair_of_inputs(width, c)
        layers = [_moments(y, torch.tensor(float("nan"), dtype=torch.float64))]
        for _ in range(depth):
            weight = torch.randn(width, width, generator=random, dtype=torch.float64) / width**0.5
            bias = torch.randn(width, 1, generator=random, dtype=torch.float64)
            value, derivative = slope(function, y[:, :2])
            before = y[:, 2].square().mean()
            z = torch.cat([value, derivative[:, :1] * y[:, 2:]], dim=1)
            branch = setting.weight_std * weight @ z
            branch[:, :2] += setting.bias_std * bias
            y = y + scale * branch
            layers.append(_moments(y, y[:, 2].square().mean() / before))
        rows.append(torch.stack(layers, dim=-1))
    return Seen(*torch.stack(rows, dim=1).unsqueeze(1).unbind(0))


def _moments(y: Tensor, chi: Tensor) -> Tensor:
    q1, q2 = y[:, 0].square().mean(), y[:, 1].square().mean()
    return torch.stack([q1, q2, (y[:, 0] * y[:, 1]).mean() / (q1 * q2).sqrt(), chi])


def kernels(
    setting: Setting,
    x: Tensor,
    width: int,
    depth: int,
    networks: int,
    *,
    density: float = 1.0,
    branch_scale: float | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Empirical NNGP and NTK, each (networks, n, n), of finite networks in the NTK parametrization, by autograd.

    A first layer on x (n, d), ``depth - 1`` more hidden layers and a readout with one output, each
    h = sigma_w / sqrt(fan_in) (mask * W) z + sigma_b b with W and b standard normal and both trained. The NNGP is that
    of the readout given the last hidden layer: averaged over the readout's weights, which takes its noise away.

    With a ``branch_scale``: a first layer, then ``depth`` blocks h + scale * (...) and no readout. The NNGP is the mean
    over the units of the last block, the NTK that of one of them.
    """
    chunk = max(1, 2_000_000 // (width * width * max(depth - 1, 1)))
    parts = [
        _kernels(setting, x, width, depth, min(chunk, networks - first), density, branch_scale, (seed, first))
        for first in range(0, networks, chunk)
    ]
    return torch.cat([k for k, _ in parts]), torch.cat([t for _, t in parts])


def _kernels(
    setting: Setting,
    x: Tensor,
    width: int,
    depth: int,
    networks: int,
    density: float,
    branch_scale: float | None,
    seed: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    random, function = generator(*seed), FUNCTIONS[setting.activation]
    parameters: list[Tensor] = []
    h = z = x.expand(networks, *x.shape)
    for layer in range(depth + 1):
        fan_in, fan_out = z.shape[2], 1 if layer == depth and branch_scale is None else width
        weight = torch.randn(networks, fan_out, fan_in, generator=random, dtype=x.dtype).requires_grad_()
        bias = torch.randn(networks, 1, fan_out, generator=random, dtype=x.dtype).requires_grad_()
        mask = torch.rand(weight.shape, generator=random, dtype=x.dtype) < density
        parameters += [weight, bias]
        made = setting.weight_std / fan_in**0.5 * z @ (weight * mask).mT + setting.bias_std * bias
        last, h = z, made if branch_scale is None or layer == 0 else h + branch_scale * made
        z = function(h)
    if branch_scale is None:
        nngp = setting.bias_std**2 + density * setting.weight_std**2 * (last @ last.mT) / width
    else:
        nngp = h @ h.mT / width
    rows = [torch.autograd.grad(h[:, i, 0].sum(), parameters, retain_graph=True) for i in range(len(x))]
    ntk = sum(
        torch.einsum("irp,jrp->rij", each, each)
        for each in (torch.stack([row[k] for row in rows]).flatten(2) for k in range(len(parameters)))
    )
    return nngp.detach(), torch.as_tensor(ntk)


def gradients(setting: Setting, width: int, depth: int, networks: int, *, seed: int = 0) -> Tensor:
    """Mean square of the gradient at the pre-activations of each layer over that at the last: (networks, depth).

    Of a loss with a random gradient at the last pre-activations, by autograd, in dense networks.
    """
    random, function = generator(seed), FUNCTIONS[setting.activation]
    z = pair_of_inputs(width, 0.5)[:, :1].expand(networks, -1, 1)
    layers = []
    for _ in range(depth):
        weight = torch.randn(networks, width, width, generator=random, dtype=torch.float64) / width**0.5
        bias = torch.randn(networks, width, 1, generator=random, dtype=torch.float64)
        h = setting.weight_std * weight @ z + setting.bias_std * bias
        h = h if h.requires_grad else h.requires_grad_()
        layers.append(h)
        z = function(h)
    back = torch.randn(h.shape, generator=random, dtype=torch.float64)
    found = torch.autograd.grad((h * back).sum(), layers)
    squares = torch.stack([g.square().mean((1, 2)) for g in found], dim=1)
    return squares / squares[:, -1:]


def infinite(narrow: Tensor, wide: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Mean over networks (first axis) at infinite width and its standard error, from widths n and factor * n.

    A mean at width n is v + B/n + C/n^2 + ...; the combination (factor wide - narrow) / (factor - 1) has no B left,
    and C only as -C / (factor n^2).
    """
    value = (factor * wide.mean(0) - narrow.mean(0)) / (factor - 1)
    variance = factor**2 * wide.var(0) / len(wide) + narrow.var(0) / len(narrow)
    return value, variance.sqrt() / (factor - 1)
