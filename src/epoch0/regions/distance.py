"""How far inputs are from the nearest boundary between regions (Hanin and Rolnick 2019, section 3.2)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from epoch0.errors import InputError
from epoch0.regions._gradients import faces
from epoch0.regions._line_count import _program, _tensor

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Distances:
    """Distance of each input from the boundary of its activation region, and which neuron folds there.

    Attributes:
        distance: Euclidean distance to the nearest boundary, (examples,); infinite where nothing folds.
        layers: names of the folding steps, in order.
        owner_layer: for each example the index in ``layers`` of what folds at the nearest boundary; -1 if none does.
        owner_neuron: and the index of the neuron, in the flattened layer (for max pooling: of the window).
        owner_face: and which of its faces (0 for a ReLU; for max pooling the entry of the window that draws level).
        neurons: number of elements that fold, all layers together.
        notes: what else should be known.
        all: if asked for, layer -> distances of all its faces, (examples, faces, neurons); those of faces other than
            the nearest are of the planes on which they lie as seen from the example's own region.
    """

    distance: np.ndarray
    layers: tuple[str, ...]
    owner_layer: np.ndarray
    owner_neuron: np.ndarray
    owner_face: np.ndarray
    neurons: int
    notes: tuple[str, ...]
    all: dict[str, np.ndarray] | None = None

    @property
    def owner(self) -> list[tuple[str, int, int] | None]:
        """Layer name, neuron and face of the boundary nearest to each example; None if there is none."""
        columns = (self.owner_layer.tolist(), self.owner_neuron.tolist(), self.owner_face.tolist())
        return [(self.layers[i], j, face) if i >= 0 else None for i, j, face in zip(*columns, strict=True)]

    @property
    def mean(self) -> float:
        """Mean distance over the examples."""
        return float(self.distance.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean over independent examples; NaN for one example, or where a distance is infinite."""
        count = len(self.distance)
        if count < 2 or not np.isfinite(self.distance).all():
            return float("nan")
        return float(self.distance.std(ddof=1) / count**0.5)

    def __len__(self) -> int:
        return len(self.distance)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row an example: distance, layer, neuron, face."""
        import pandas

        return pandas.DataFrame({
            "distance": self.distance, "layer": [self.layers[i] if i >= 0 else None for i in self.owner_layer],
            "neuron": self.owner_neuron, "face": self.owner_face,
        })  # fmt: skip

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.distance, [0.0, 0.5, 1.0], method="nearest")  # may be infinite
        rows = [
            f"distance to the nearest boundary of {len(self)} examples: mean {self.mean:.4g} (standard error "
            f"{self.standard_error:.1g}), median {middle:.4g}, from {low:.4g} to {high:.4g}",
            f"  times {self.neurons} neurons: {self.mean * self.neurons:.4g}",
        ]
        for i, name in enumerate(self.layers):
            rows.append(f"  nearest in {name:<20} {int((self.owner_layer == i).sum()):>8}")
        return "\n".join([*rows, *(f"  note: {note}" for note in self.notes)])


def distance(model: nn.Module, x: Any, *, every: bool = False) -> Distances:
    """The exact distance of each example to the nearest boundary of a linear region.

    >>> d = distance(net, images)                             # net: 784-256-256-10, images: (1000, 784)
    >>> d.distance.shape, d.owner[0]
    ((1000,), ('1', 17, 0))
    >>> d.mean * d.neurons                                    # about constant over architectures at initialization
    1.2...

    Inside its own region every pre-activation z is an affine function of the input, so the plane on which neuron z
    folds is ``|z - face| / ||grad z||`` away, and the nearest of these planes is reached before any other: the least of
    these numbers is exact. The boundary is that of activation regions; where the nearest neuron has no open way to the
    output, the network's function does not change there.

    Args:
        model: as for :func:`epoch0.regions.on_line`; it is read in float64 and evaluation mode and stays as it is.
        x: examples, shape ``(examples, *shape)``, or one example of the model's input shape.
        every: whether to return the distances of all faces of all neurons too.

    Returns:
        Distances.

    Raises:
        InputError: if x does not suit the model or holds NaN, or the model has an operation that is not piecewise
            linear (the message names it).

    Source: Hanin and Rolnick 2019, section 2.2 (the exact formula of the distance) and Figure 6.
    """
    x = _tensor("x", x)
    if x.numel() == 0:
        raise InputError(f"x has shape {tuple(x.shape)}: there is no example in it.")
    program, single = _program(model, x)
    points = (x[None] if single else x).to(next(model.parameters()).device)
    count, folds = len(points), program.folds
    nearest = np.full(count, np.inf)
    owner = np.full((3, count), -1, dtype=np.int64)
    every_layer: list[list[np.ndarray]] = [[] for _ in folds]
    with torch.no_grad():
        for start, found in faces(program, points):
            for number, layer in enumerate(found):
                away = layer.distance
                flat, width = away.reshape(len(away), -1), away.shape[2]
                value, place = (part.cpu().numpy() for part in flat.min(dim=1))
                rows = start + np.flatnonzero(value < nearest[start : start + len(value)])
                nearest[rows], place = value[rows - start], place[rows - start]
                owner[:, rows] = np.stack([np.full(len(rows), number), place % width, place // width])
                if every:
                    every_layer[number].append(away.cpu().numpy())
    names = tuple(step.name for step in folds)
    everything = {n: np.concatenate(parts) for n, parts in zip(names, every_layer, strict=True)} if every else None
    return Distances(nearest, names, owner[0], owner[1], owner[2], program.neurons, program.notes, everything)
