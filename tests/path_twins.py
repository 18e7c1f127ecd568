"""Truth about paths: each weight removed in turn, and all paths of a small graph walked one by one."""

import torch
from torch import Tensor, nn
from torch.func import functional_call


def matters(model: nn.Module, masks: dict[str, Tensor], shape: tuple[int, ...], seed: int = 0) -> dict[str, Tensor]:
    """Weights whose removal changes the output of a linear network without biases and with positive random weights.

    All terms are positive, so a weight on a path adds to some output and no other term can undo it.
    """
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(1, *shape, generator=source, dtype=torch.float64) + 0.5
    values = {
        name: torch.zeros_like(p, dtype=torch.float64) if "bias" in name
        else torch.rand(p.shape, generator=source, dtype=torch.float64) + 0.5
        for name, p in model.named_parameters()
    }  # fmt: skip
    values = {name: value * masks[name] if name in masks else value for name, value in values.items()}
    whole = functional_call(model, values, (x,))
    found = {}
    for name, mask in masks.items():
        found[name] = torch.zeros_like(mask)
        for place in mask.nonzero():
            index = tuple(place.tolist())
            without = values[name].clone()
            without[index] = 0.0
            found[name][index] = not torch.equal(functional_call(model, {**values, name: without}, (x,)), whole)
    return found


Edge = tuple[object, object]


def edges_on_paths(edges: dict[Edge, object], starts: set[object], ends: set[object]) -> set[object]:
    """Labels of the edges that some walk from a start to an end uses; every walk of the graph is taken."""
    onward: dict[object, list[object]] = {}
    for a, b in edges:
        onward.setdefault(a, []).append(b)
    found = set[object]()

    def walk(unit: object, labels: tuple[object, ...]) -> None:
        if unit in ends:
            found.update(labels)
        for other in onward.get(unit, []):
            label = edges[unit, other]
            walk(other, labels if label is None else (*labels, label))

    for start in starts:
        walk(start, ())
    return found
