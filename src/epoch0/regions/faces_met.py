"""What Theorem 3 of Hanin and Rolnick adds up, for one network at some points: densities of neurons at their faces.

A neuron is put on one of its faces by the bias that it would need there: its output becomes the face's, and what comes
after is computed anew. That is done for all rows (point, neuron, face) of a layer at once. Rows whose bias is farther
out than its law reaches are left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from epoch0.regions.network.pieces import slopes_between
from epoch0.regions.network.steps import Fold

_NUMBERS = 1 << 21  # of one layer, carried at a time


@dataclass(frozen=True)
class Dense:
    """One dense network.

    Attributes:
        layers: (weight, bias) of each layer, float64.
        hidden: number of layers that fold.
        fold: the activation.
        density: of a bias, elementwise.
        reach: how far from zero a bias comes.
    """

    layers: list[tuple[Tensor, Tensor]]
    hidden: int
    fold: Fold
    density: Callable[[Tensor], Tensor]
    reach: float


@dataclass(frozen=True)
class _Rows:
    """States of the network in front of one layer.

    Attributes:
        weight: what each row counts, (rows,).
        value: outputs of the layer before, (rows, width).
        tangent: their derivatives, (directions, rows, width).
        gradient: derivatives of the neuron that is on a face already, (directions, rows), where one more is to come.
        reached: for each neuron on a face, to which outputs of the layer before it leads on open ways, (rows, width).
    """

    weight: Tensor
    value: Tensor
    tangent: Tensor
    gradient: Tensor | None = None
    reached: tuple[Tensor, ...] = ()


class FacesMet:
    """Sums over sets of k neurons of the density of their biases on their faces times the volume of their gradients.

    Args:
        net: the network; only biases of other neurons than those in the set matter.
        k: neurons in a set, 1 or 2.
        open_ways: whether to count only sets all of whose neurons have an open way to the output.
    """

    def __init__(self, net: Dense, k: int, *, open_ways: bool) -> None:
        self.net, self.k, self.open_ways = net, k, open_ways
        self.faces = torch.tensor(net.fold.faces, dtype=torch.float64)
        self.heights = net.fold.run(self.faces)
        self.slopes = slopes_between(net.fold, torch.zeros(1, dtype=torch.float64))
        self.total = torch.zeros(net.hidden, dtype=torch.float64)

    def mean(self, points: Tensor, directions: Tensor) -> Tensor:
        """Averaged over the points; (layers,), a set standing under the last layer it has a neuron of.

        Args:
            points: shape (points, inputs).
            directions: orthonormal, (directions, inputs).
        """
        self.total.zero_()
        tangent = directions[:, None].expand(-1, len(points), -1)
        self._down(_Rows(torch.full((len(points),), 1.0 / len(points)).double(), points, tangent), 0, self.k, 0)
        return self.total.clone()

    def _down(self, rows: _Rows, layer: int, missing: int, completed: int) -> None:
        """Carry rows from a layer to the output, putting neurons on faces on the way until none is missing."""
        for number in range(layer, self.net.hidden):
            if not len(rows.weight) or not (missing or self.open_ways):
                return
            weight, bias = self.net.layers[number]
            pushed, tangent = rows.value @ weight.T, rows.tangent @ weight.T
            if missing == 2:
                self._pairs(rows, pushed, tangent, number)
            if missing:
                self._singles(rows, pushed, tangent, number, missing)
            rows = self._through(rows, pushed + bias, tangent, number)
        if self.open_ways and not missing and len(rows.weight):
            good = torch.ones(len(rows.weight), dtype=torch.bool)
            for reached in rows.reached:
                for weight, _ in self.net.layers[self.net.hidden :]:
                    reached = reached & (weight != 0).any(dim=0)
                good &= reached.any(dim=1)
            self.total[completed] += rows.weight[good].sum()

    def _through(self, rows: _Rows, z: Tensor, tangent: Tensor, layer: int) -> _Rows:
        """Through the activation of a layer."""
        slope = self.slopes[(z[..., None] > self.faces).sum(dim=-1)]
        connected = (self.net.layers[layer][0] != 0).double().T
        reached = tuple(((r.double() @ connected) > 0) & (slope != 0) for r in rows.reached)
        return _Rows(rows.weight, self.net.fold.run(z), tangent * slope, rows.gradient, reached)

    def _density(self, pushed: Tensor) -> Tensor:
        """Density of the bias that puts each neuron on each face, (rows, width, faces)."""
        needed = self.faces - pushed[..., None]
        return torch.where(needed.abs() <= self.net.reach, self.net.density(needed), 0.0)

    def _singles(self, rows: _Rows, pushed: Tensor, tangent: Tensor, layer: int, missing: int) -> None:
        density = self._density(pushed)
        volume = torch.ones_like(pushed)
        if missing == 1:
            volume = tangent.norm(dim=0) if rows.gradient is None else _cross(rows.gradient[..., None], tangent)
            if not self.open_ways:
                self.total[layer] += (rows.weight[:, None] * density.sum(dim=2) * volume).sum()
                return
        for row, neuron, face in self._blocks((density > 0).nonzero().T, pushed):
            weight = rows.weight[row] * density[row, neuron, face] * volume[row, neuron]
            self._put(rows, pushed, tangent, layer, weight, row, [(neuron, face)], missing - 1)

    def _pairs(self, rows: _Rows, pushed: Tensor, tangent: Tensor, layer: int) -> None:
        """Both neurons in one layer."""
        density = self._density(pushed)
        if not self.open_ways:
            summed = density.sum(dim=2)
            size = max(1, _NUMBERS // pushed.shape[1] ** 2)
            for row in torch.arange(len(pushed)).split(size):
                cross = _cross(tangent[:, row, :, None], tangent[:, row, None, :])
                both = torch.einsum("rab,ra,rb->r", cross, summed[row], summed[row])
                self.total[layer] += 0.5 * (rows.weight[row] * both).sum()
            return
        size = max(1, _NUMBERS // (pushed.shape[1] * len(self.faces)) ** 2)
        for start in range(0, len(pushed), size):
            hits = (density[start : start + size] > 0).nonzero()
            for first, second in self._blocks(_pairs_of_rows(hits), pushed):
                (row, a, on_a), (_, b, on_b) = hits[first].T, hits[second].T
                row = row + start
                weight = rows.weight[row] * density[row, a, on_a] * density[row, b, on_b]
                weight = weight * _cross(tangent[:, row, a], tangent[:, row, b])
                self._put(rows, pushed, tangent, layer, weight, row, [(a, on_a), (b, on_b)], 0)

    def _blocks(self, index: Tensor, like: Tensor) -> Iterator[tuple[Tensor, ...]]:
        size = max(1, _NUMBERS // max(1, like[0].numel() * self.k))
        for part in index.split(size, dim=1):
            yield tuple(part)

    def _put(
        self, rows: _Rows, pushed: Tensor, tangent: Tensor, layer: int, weight: Tensor, row: Tensor,
        neurons: list[tuple[Tensor, Tensor]], missing: int,
    ) -> None:  # fmt: skip
        """Rows with some neurons of this layer on faces, from here to the output.

        The derivatives of a neuron on its face are set to zero for what comes after: any multiple of the gradient of
        one neuron may be taken from that of another without changing the area they span.
        """
        every = torch.arange(len(row))
        gradient = tangent[:, row, neurons[0][0]] if missing else None
        before = _Rows(weight, rows.value[row], tangent[:, row], gradient, tuple(r[row] for r in rows.reached))
        after = self._through(before, pushed[row] + self.net.layers[layer][1], before.tangent, layer)
        reached = list(after.reached)
        for neuron, face in neurons:
            after.value[every, neuron] = self.heights[face]
            after.tangent[:, every, neuron] = 0.0
            for one in reached:
                one[every, neuron] = False  # on its face a neuron is not open
        for neuron, _ in neurons:
            own = torch.zeros_like(after.value, dtype=torch.bool)
            own[every, neuron] = True
            reached.append(own)
        tangents = after.tangent if missing else after.tangent[:0]
        self._down(_Rows(weight, after.value, tangents, gradient, tuple(reached)), layer + 1, missing, layer)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Area spanned by two gradients, (2, ...) each."""
    return (a[0] * b[1] - a[1] * b[0]).abs()


def _pairs_of_rows(hits: Tensor) -> Tensor:
    """Which hits (row, neuron, face), sorted by rows, are of one row and of different neurons; (2, pairs)."""
    count = torch.arange(len(hits))
    others = torch.searchsorted(hits[:, 0].contiguous(), hits[:, 0].contiguous(), right=True) - count - 1
    first = count.repeat_interleave(others)
    second = first + 1 + torch.arange(len(first)) - (others.cumsum(0) - others).repeat_interleave(others)
    apart = hits[first, 1] != hits[second, 1]
    return torch.stack([first[apart], second[apart]])
