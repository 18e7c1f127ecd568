"""Networks with two inputs, their regions layer by layer: Hanin-Rolnick Figure 2, and Raghu et al. Figure 1.

Every network of a trial is put to the tests of how its regions are made; the first is drawn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from epoch0 import regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import Claim, at_most, exact
from epoch0.networks import ensemble
from epoch0.papers.sweep import Array, Found, Table, mean_and_error
from epoch0.regions import PlanePartition, pattern_colours
from epoch0.theory.regions import upper_bound

EXACT = 1e-9  # relative difference between sums of lengths or areas that rounding explains
STRAIGHT = 1e-9
"""Largest angle between directions, in radians and relative to the rounding of short edges, that counts as none."""

_ROUNDING = 1e-13  # of a coordinate in a window of size 1


@dataclass(frozen=True)
class PlanarSpec:
    """Networks from R^2, sigma_w before the division by sqrt(fan-in), and the square [-half, half]^2.

    All networks are tested, the first is drawn.
    """

    width: int
    depth: int
    weight_std: float
    bias_std: float
    half: float
    networks: int


def partitions(spec: PlanarSpec, seed: int) -> dict[str, Any]:
    """Partition the square by every network, layer by layer.

    ``cells`` are activation regions after each layer, (networks, depth); ``parents``, distinct patterns of the first l
    layers over all final cells, are equal to them if every cell comes from one cell of each layer before; ``moved`` is
    the largest relative difference between the length of the boundaries that the first l layers make in the whole
    network and in the network cut off there; ``bent`` counts bends of a boundary where no earlier layer has one. Of the
    first network the drawing: ``owner`` is the layer of each edge, -1 for the border, ``heights`` the output at each
    vertex, and names with ``_l`` are the cells after layer l.
    """
    torch.set_num_threads(1)
    laws = {"weights": Gaussian(spec.weight_std), "biases": Gaussian(spec.bias_std)}
    sizes = [2, *[spec.width] * spec.depth, 1]
    nets = ensemble(spec.networks, sizes, **laws, seed=seed, dtype=torch.float64)  # type: ignore[arg-type]
    axes = torch.eye(2, dtype=torch.float64)
    window = regions.square(torch.zeros(2), axes[0], axes[1], spec.half)
    tested: list[dict[str, Any]] = []
    drawing: dict[str, Any] = {}
    for net in nets:
        layers = [regions.on_plane(net[: 2 * (layer + 1)], window) for layer in range(spec.depth)]
        whole = regions.on_plane(net, window)
        tested.append(_tested(spec, whole, layers))
        if not drawing:
            drawing = _drawing(net, whole, layers)
    result = {name: np.stack([np.asarray(one[name], dtype=np.float64) for one in tested]) for name in tested[0]}
    return {**result, **drawing}


def _tested(spec: PlanarSpec, whole: PlanePartition, layers: list[PlanePartition]) -> dict[str, Any]:
    bits = np.unpackbits(whole.patterns, axis=1)[:, : spec.width * spec.depth]
    parents = [len(np.unique(bits[:, : spec.width * (layer + 1)], axis=0)) for layer in range(spec.depth)]
    lengths = _lengths(whole)
    moved = []
    for layer, cut in enumerate(layers):
        own = _lengths(cut)[cut.owner_layer >= 0].sum()
        same = lengths[(whole.owner_layer >= 0) & (whole.owner_layer <= layer)].sum()
        moved.append(abs(own - same) / max(own, 1e-300))
    bends = [bends_of(whole, layer) for layer in range(spec.depth)]
    return {
        "cells": [cut.count for cut in layers], "linear": whole.linear_count, "parents": parents, "moved": max(moved),
        "bends": [len(at) for at, _ in bends], "bent": sum(int((~explained).sum()) for _, explained in bends),
        "concave": concave_corners(whole), "euler": whole.certificate.euler,
        "area_error": whole.certificate.measure_error,
    }  # fmt: skip


def bends_of(partition: PlanePartition, layer: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the boundary of a neuron of that layer turns, and whether an earlier layer has a boundary there."""
    mine = np.flatnonzero(partition.owner_layer == layer)
    ends = partition.edges[mine]  # (edges, 2)
    vertex, edge = ends.ravel(), np.repeat(np.arange(len(mine)), 2)
    neuron = np.repeat(partition.owner_neuron[mine], 2)
    order = np.lexsort((vertex, neuron))
    vertex, edge, neuron = vertex[order], edge[order], neuron[order]
    pair = np.flatnonzero((vertex[1:] == vertex[:-1]) & (neuron[1:] == neuron[:-1]))
    at = vertex[pair]

    def direction(edges: NDArray[np.int64]) -> tuple[Array, Array]:
        """Unit vectors away from the vertex, and the angle that rounding may turn them by."""
        both = ends[edges]
        other = np.where(both[:, 0] == at, both[:, 1], both[:, 0])
        along = partition.vertices[other] - partition.vertices[at]
        length = np.linalg.norm(along, axis=1)
        return along / length[:, None], STRAIGHT + 100 * _ROUNDING / length

    (first, blur), (second, more) = direction(edge[pair]), direction(edge[pair + 1])
    turn = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    at = at[turn > blur + more]
    earlier = np.zeros(len(partition.vertices), dtype=bool)
    earlier[partition.edges[(partition.owner_layer >= 0) & (partition.owner_layer < layer)]] = True
    return at, earlier[at]


def concave_corners(partition: PlanePartition) -> int:
    """Corners of cells that turn the wrong way, by more than rounding can."""
    ends, corners = partition.cell_ends, partition.cell_vertices
    following, before = np.arange(1, len(corners) + 1), np.arange(-1, len(corners) - 1)
    following[ends[1:] - 1], before[ends[:-1]] = ends[:-1], ends[1:] - 1
    point = partition.vertices[corners]
    out, into = point[following] - point, point - point[before]
    lengths = np.linalg.norm(out, axis=1), np.linalg.norm(into, axis=1)
    turn = into[:, 0] * out[:, 1] - into[:, 1] * out[:, 0]
    allowed = STRAIGHT * lengths[0] * lengths[1] + 100 * _ROUNDING * (lengths[0] + lengths[1])
    return int((turn < -allowed).sum())


def _lengths(partition: PlanePartition) -> Array:
    ends = partition.vertices[partition.edges]
    return np.asarray(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1))


def _drawing(net: nn.Module, whole: PlanePartition, layers: list[PlanePartition]) -> dict[str, Any]:
    with torch.no_grad():
        heights = net(whole.points)[:, 0].numpy()
    found: dict[str, Any] = {
        "vertices": whole.vertices, "edges": whole.edges, "owner": whole.owner_layer, "heights": heights
    }  # fmt: skip
    for index, cut in enumerate(layers, start=1):
        found[f"vertices_{index}"], found[f"cell_ends_{index}"] = cut.vertices, cut.cell_ends
        found[f"cell_vertices_{index}"], found[f"colours_{index}"] = cut.cell_vertices, pattern_colours(cut.patterns)
    return found


# ---- what the figures share


def table(found: Found) -> Table:
    """One row a network and layer: regions after it, and what the tests of the whole network found."""
    spec, (result,) = found.sweep.spec, found.one().results
    whole = {name: np.asarray(result[name]) for name in ("cells", "bends", "linear", "euler", "area_error")}
    return Table(
        {
            "network": network, "layer": layer + 1, "regions": int(whole["cells"][network, layer]),
            "most_possible": upper_bound([spec.width] * (layer + 1), inputs=2),
            "bends_of_its_boundaries": int(whole["bends"][network, layer]),
            "linear_regions_of_the_network": int(whole["linear"][network]), "euler": int(whole["euler"][network]),
            "area_error": float(whole["area_error"][network]),
        }
        for network in range(spec.networks) for layer in range(spec.depth)
    )  # fmt: skip


def below_bound(found: Found) -> Claim:
    """Theorem 1 of Raghu et al., layer by layer."""
    spec, (result,) = found.sweep.spec, found.one().results
    mean, error = mean_and_error(np.asarray(result["cells"]))
    bounds = [float(upper_bound([spec.width] * (layer + 1), inputs=2)) for layer in range(spec.depth)]
    text = "the number of regions is at most (1 + k + k(k - 1)/2)^n, k neurons in each of n layers"
    return at_most(text, mean, error, bounds, spec.networks, [f"layer {i + 1}" for i in range(spec.depth)])


def checks(found: Found) -> Claim:
    """Euler's relation and the area, on every network."""
    (result,) = found.one().results
    euler, area = np.asarray(result["euler"]), float(np.abs(result["area_error"]).max())
    return exact(
        "vertices - edges + cells = 1, and the areas add up to the square",
        bool((euler == 1).all()) and area < EXACT,
        f"{len(euler)} networks; areas are off by at most {area:.1e} of the square",
        {"area_error": area, "euler_least": float(euler.min()), "euler_most": float(euler.max())},
    )
