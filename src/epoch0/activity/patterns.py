"""Activation patterns: on which linear stretch every neuron is, for a batch of inputs, packed into bits (Raghu 2.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity._reading import read
from epoch0.columns import aligned
from epoch0.errors import InputError, check_finite, suggest

if TYPE_CHECKING:
    import pandas

_VALUES = 1 << 24  # numbers of all layers held at a time
_PAIRS = 1 << 24  # bytes compared at a time
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)  # of each byte


@dataclass(frozen=True, eq=False)
class ActivationPatterns:
    """The patterns of some inputs, one bit for every neuron and face.

    Attributes:
        layers: names of the layers, in order.
        neurons: how many each has; of max pooling its windows.
        bits: for each layer which neurons are above each face, shape (inputs, faces, bytes), uint8; bits run over
            neurons as ``numpy.packbits`` packs them. A hard tanh has two faces, so patterns 00, 10 and 11. A maximum
            has one "face" for every entry of a window, set for the largest.
    """

    layers: tuple[str, ...]
    neurons: tuple[int, ...]
    bits: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.bits[0])

    @property
    def packed(self) -> np.ndarray:
        """All layers side by side, uint8 of shape (inputs, bytes). Equal rows are equal patterns."""
        return np.concatenate([part.reshape(len(part), -1) for part in self.bits], axis=1)

    @property
    def count(self) -> int:
        """Distinct patterns of the whole network."""
        return _distinct(self.packed)

    @property
    def per_layer(self) -> np.ndarray:
        """Distinct patterns of each layer alone, shape (layers,)."""
        return np.array([_distinct(part.reshape(len(part), -1)) for part in self.bits])

    def states(self, layer: str) -> np.ndarray:
        """The number of faces each neuron of a layer is above, shape (inputs, neurons): 0, 1 or, for hard tanh, 2."""
        place = self._place(layer)
        found = np.unpackbits(self.bits[place], axis=2, count=self.neurons[place])
        return np.asarray(found.sum(axis=1, dtype=np.uint8))

    def hamming(self, layer: str | None = None) -> np.ndarray:
        """Neurons whose state differs between every two inputs, shape (inputs, inputs), int64.

        Args:
            layer: count its neurons only; by default those of all layers.
        """
        total = np.zeros((len(self), len(self)), dtype=np.int64)
        for part in self._parts(layer):
            size = max(1, _PAIRS // max(1, part.size))
            for begin in range(0, len(part), size):
                total[begin : begin + size] += _differing(part[begin : begin + size, None], part[None])
        return total

    def changes(self, layer: str | None = None) -> np.ndarray:
        """Neurons whose state differs between each input and the next, shape (inputs - 1,): what a path switches."""
        total = np.zeros(len(self) - 1, dtype=np.int64)
        for part in self._parts(layer):
            total += _differing(part[1:], part[:-1])
        return total

    def _parts(self, layer: str | None) -> Sequence[np.ndarray]:
        return self.bits if layer is None else [self.bits[self._place(layer)]]

    def _place(self, layer: str) -> int:
        if layer not in self.layers:
            known = ", ".join(self.layers)
            raise InputError(f"there is no layer {layer!r}; there are {known}.{suggest(layer, self.layers)}")
        return self.layers.index(layer)

    def to_dict(self) -> list[dict[str, Any]]:
        """One dict a layer."""
        rows = zip(self.layers, self.neurons, self.per_layer.tolist(), strict=True)
        return [{"layer": layer, "neurons": neurons, "patterns": count} for layer, neurons, count in rows]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def __str__(self) -> str:
        rows = [["layer", "neurons", "distinct patterns"]]
        rows += [[row["layer"], str(row["neurons"]), str(row["patterns"])] for row in self.to_dict()]
        return "\n".join([f"{self.count} distinct activation patterns of {len(self)} inputs", *aligned(rows)])


def activation_patterns(
    model: nn.Module, x: Tensor, *, threshold: float | Sequence[float] | None = None
) -> ActivationPatterns:
    """On which linear stretch every neuron is, for a batch of inputs.

    >>> net = e0.networks.mlp([784, 100, 100, 10], seed=0)
    >>> p = e0.activation_patterns(net, x)                       # x of shape (1000, 784)
    >>> p.count, p.bits[0].shape, p.hamming().shape              # 100 ReLUs fit into 13 bytes
    (1000, (1000, 1, 13), (1000, 1000))

    Args:
        model: any torch module with piecewise linear nonlinearities, or any with a threshold; it is read in float64 and
            evaluation mode and stays as it is.
        x: shape (inputs, \\*shape of one input).
        threshold: value, or values, of the pre-activation that part the states of a neuron; by default those at which
            its slope changes.

    Raises:
        InputError: inputs that do not fit, or a network that cannot be read.

    Source: Raghu et al. 2017, section 2.1.
    """
    if not isinstance(x, Tensor):
        raise InputError(f"x is a {type(x).__name__}; give a tensor of shape (inputs, *shape of one input).")
    check_finite("x", x)
    if x.dim() < 2 or not len(x):
        raise InputError(f"x has shape {tuple(x.shape)}; give a batch of inputs, (inputs, *shape of one input).")
    reading = read(model, tuple(x.shape[1:]), threshold, output=False)
    rows = max(1, _VALUES // sum(layer.width for layer in reading.layers))
    found: list[list[np.ndarray]] = [[] for _ in reading.layers]
    for part in x.detach().cpu().double().split(rows):
        for layer, values, made in zip(reading.layers, reading.values(part), found, strict=True):
            if layer.entries:
                above = torch.stack([values == entry for entry in range(layer.entries)], dim=1)
            else:
                above = torch.stack([values > face for face in layer.faces], dim=1)
            made.append(np.packbits(above.cpu().numpy(), axis=2))
    return ActivationPatterns(
        tuple(layer.name for layer in reading.layers), tuple(layer.width for layer in reading.layers),
        tuple(np.concatenate(parts) for parts in found),
    )  # fmt: skip


def _distinct(rows: np.ndarray) -> int:
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))
    return len(np.unique(whole))


def _differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Neurons that differ in any face; the last two axes are faces and bytes."""
    apart = np.bitwise_or.reduce(a ^ b, axis=-2)
    return np.asarray(_ONES[apart].sum(axis=-1, dtype=np.int64))
