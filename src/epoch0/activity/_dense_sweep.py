"""Many dense networks with one layer's weights swept, as one program over (network, input, angle) (Raghu B.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epoch0.activity.weight_circle import NUMBERS, turned
from epoch0.networks.ensemble import Ensemble

_PADDED = 1.3  # times the rows that one batched product may have; beyond, networks go one by one


@dataclass(frozen=True, eq=False)
class DenseSweeps:
    """Networks of one ensemble on fixed inputs, ready to be looked at anywhere on their sweeps.

    Attributes:
        inputs: of each network.
        turning: coefficients of cos, sin and, where there are biases, 1 of the swept layer's outputs, shape
            (networks * inputs, width) each.
        above: weights (networks, out, in) and biases (networks, out) of the layers above; None where they are 0.
        activation: the nonlinearity.
        linear_output: whether the last layer is left without it.
        output: which output is looked at.
    """

    inputs: int
    turning: tuple[Tensor, ...]
    above: tuple[tuple[Tensor, Tensor | None], ...]
    activation: nn.Module
    linear_output: bool
    output: int

    def __call__(self, which: Tensor, angle: Tensor) -> Tensor:
        """Numbers of (network, input), never decreasing, and angles, shape (m,) each, to one output, shape (m,)."""
        networks, widest = len(self.turning[0]) // self.inputs, self.turning[0].shape[1]
        rows = max(1, NUMBERS // max([widest, *(weight.shape[1] for weight, _ in self.above)]))
        ends = torch.bincount(which // self.inputs, minlength=networks).cumsum(0).tolist()
        made, begin, first = [], 0, 0
        with torch.no_grad():
            while begin < len(which):
                while ends[first] <= begin:
                    first += 1
                last = first  # whole networks while they fit, or a part of one
                while last + 1 < len(ends) and ends[last + 1] - begin <= rows:
                    last += 1
                stop = min(ends[last], begin + rows) if last == first else ends[last]
                sizes = [min(ends[i], stop) - max(begin, ends[i - 1] if i else 0) for i in range(first, last + 1)]
                made.append(self._some(which[begin:stop], angle[begin:stop], first, sizes))
                begin = stop
        return torch.cat(made) if made else angle.new_zeros(0)

    def _some(self, which: Tensor, angle: Tensor, first: int, sizes: list[int]) -> Tensor:
        """Rows of consecutive networks, ``sizes`` of each: in one product where they are about as many."""
        z = turned(self.turning, which, angle)
        most = max(sizes)
        if most * len(sizes) > _PADDED * len(z):
            parts = enumerate(z.split(sizes), first)
            return torch.cat([self._through(part[None], slice(i, i + 1))[0] for i, part in parts if len(part)])
        here = slice(first, first + len(sizes))
        if most * len(sizes) == len(z):
            return self._through(z.view(len(sizes), most, -1), here).reshape(-1)
        own = which // self.inputs - first
        begins = torch.tensor([0, *sizes]).cumsum(0)
        place = own * most + torch.arange(len(z)) - begins[own]
        padded = z.new_zeros(len(sizes) * most, z.shape[1]).index_copy_(0, place, z)
        return self._through(padded.view(len(sizes), most, -1), here).reshape(-1)[place]

    def _through(self, z: Tensor, networks: slice) -> Tensor:
        """The layers above, (networks, rows, width) to (networks, rows)."""
        for number, (weight, bias) in enumerate(self.above):
            z = self.activation(z)
            last = number == len(self.above) - 1
            rows = slice(self.output, self.output + 1) if last else slice(None)
            z = torch.bmm(z, weight[networks, rows].mT)
            if bias is not None:
                z += bias[networks, None, rows]
        found = z[:, :, 0] if self.above else z[:, :, self.output]
        return found if self.linear_output else self.activation(found)


def dense_sweeps(nets: Ensemble, inputs: Tensor, layer: int, others: Tensor, output: int) -> DenseSweeps:
    """Prepare all networks of an ensemble.

    Args:
        nets: the networks.
        inputs: shape (inputs, size) or (networks, inputs, size), float64.
        layer: which is swept, from 0.
        others: weights a quarter turn away, shape (networks, out, in), float64.
        output: which output is looked at.
    """
    drawn = nets.stacked(0, len(nets))
    layers: list[tuple[Tensor, Tensor | None]] = [
        (drawn[weight].double(), drawn[bias].double() if bool(drawn[bias].any()) else None)
        for weight, bias in nets.spec.names()
    ]
    activation = next((part for part in nets.spec.skeleton() if not isinstance(part, nn.Linear)), nn.Identity())
    if hasattr(activation, "inplace"):  # what it is given here is never needed again
        setattr(activation, "inplace", True)  # noqa: B010 - not every nonlinearity has one
    with torch.no_grad():
        z = inputs.expand(len(nets), *inputs.shape[-2:])
        for weight, bias in layers[:layer]:
            z = torch.bmm(z, weight.mT)
            z = activation(z if bias is None else z.add_(bias[:, None]))
        weight, bias = layers[layer]
        parts = [torch.bmm(z, weight.mT), torch.bmm(z, others.mT)]
        if bias is not None:
            parts.append(bias[:, None].expand_as(parts[0]))
        turning = tuple(part.reshape(-1, weight.shape[1]) for part in parts)
    return DenseSweeps(z.shape[1], turning, tuple(layers[layer + 1 :]), activation, nets.spec.linear_output, output)
