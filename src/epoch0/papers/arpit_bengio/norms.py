"""Random ReLU networks of Arpit-Bengio Figures 1, 2, 3: norms of activations and gradients, and their exact laws."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.distributions import Gaussian
from epoch0.papers.sweep import Spec
from epoch0.seeds import generator
from epoch0.theory.norms import NormRatio

INITS = ("he", "glorot")
_INPUTS, _LABELS, _WEIGHTS = 0, 1, 2
"""Streams of a network: its inputs, its labels, and from there on one for each weight matrix."""

_AT_ONCE = 500  # inputs carried through at once, so that the widest network needs little memory beside its weights
LEVEL = 0.95  # of the bands: the ratio of one input of one network is inside with this probability


def relu(widths: tuple[int, ...], init: str, inputs: int, size: int = 500, classes: int = 20, **some: int) -> Spec:
    """Random ReLU networks without biases, with a linear layer, softmax and cross-entropy on top.

    ``init`` is ``"he"``, variance 2/fan-out as in the paper, or ``"glorot"``, 2/(fan-in + fan-out). Each network has
    inputs of its own, of ``size`` coordinates N(0, 1), each with a random class.
    """
    some = {"first": 0, "networks": 1, **some}
    return Spec(widths=widths, init=init, inputs=inputs, size=size, classes=classes, **some)


def of_widths(*widths: int, depth: int = 1) -> dict[int, Any]:
    """An axis of the width of all layers."""
    return {width: {"widths": (width,) * depth} for width in widths}


def weight_stds(spec: Spec) -> tuple[float, ...]:
    """Standard deviation of a weight of each hidden layer and of the linear layer on top.

    The linear layer is part of the backward pass only, so that He's variance for the backward pass, 2/fan-in, is taken.
    """
    fans = list(zip((spec.size, *spec.widths), (*spec.widths, spec.classes), strict=True))
    if spec.init == "glorot":
        return tuple(math.sqrt(2 / (fan_in + fan_out)) for fan_in, fan_out in fans)
    return (*(math.sqrt(2 / width) for width in spec.widths), math.sqrt(2 / spec.widths[-1]))


def deep(spec: Spec, seed: int) -> dict[str, Any]:
    """Norm ratios at every layer (networks, layers), averaged over the inputs of each network; equations 17 and 19.

    ``activation`` is ``||h^l|| / ||x||``; ``gradient`` is ``||dloss/dW^l||_F / (||delta|| ||x||)``, where delta is the
    gradient at the last hidden pre-activation; ``step`` is ``||h^l||^2 / ||h^(l-1)||^2``; ``..._square`` their mean
    squares. ``alignment`` (networks,) is the mean of cos^2 of the angle between delta and h^L, times half the last
    width, which is 1 for a delta that knows nothing of h^L. A network is the same in whatever block.
    """

    def one(found: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        ratios = {"activation": found["hidden"] / found["input"], "gradient": found["gradient"], "step": found["step"]}
        cosine = found["product"] / (found["delta"][-1] * found["hidden"][-1])
        row: dict[str, Any] = {"alignment": (cosine**2).mean() * spec.widths[-1] / 2}
        for name, ratio in ratios.items():
            row |= {name: ratio.mean(1), f"{name}_square": (ratio**2).mean(1)}
        return row

    return _each(spec, seed, one)


def shallow(spec: Spec, seed: int) -> dict[str, Any]:
    """Norm ratios of one hidden layer for every input, (networks, inputs), float32; equations 25 and 26.

    ``forward`` is ``||h|| / ||x||``; ``backward`` is ``||dloss/dW||_F / (||delta|| ||x||)`` with delta the error at the
    output, which Lemma 5 is about.
    """

    def one(found: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        ratios = {"forward": found["hidden"][0] / found["input"], "backward": found["delta"][0] / found["error"]}
        return {name: ratio.astype(np.float32) for name, ratio in ratios.items()}  # ||x|| is on both sides

    return _each(spec, seed, one)


def worst(spec: Spec, seed: int) -> dict[str, Any]:
    """The least eps that is enough for all inputs and layers of each network at once, (networks,).

    ``step``: every layer changes every squared norm by at most a share eps, the event whose probability Theorem 1 adds
    up; ``norm`` and ``gradient``: what Theorems 1 and 3 conclude, ``(1 - eps)^L <= ratio <= (1 + eps)^L``, where
    Theorem 1 has l for L at layer l.
    """

    def one(each: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        depth = len(spec.widths)
        norm = (each["hidden"] / each["input"]) ** (2 / np.arange(1, depth + 1)[:, None])
        roots = {"step": each["step"], "norm": norm, "gradient": each["gradient"] ** (2 / depth)}
        return {name: np.abs(ratio - 1).max() for name, ratio in roots.items()}

    return _each(spec, seed, one)


def plane(spec: Spec, seed: int) -> dict[str, Any]:
    """Over a whole plane, the least eps that is enough at each layer, (networks, layers), and ranks of its images.

    ``square`` for squared norms, ``norm`` for norms; at layer l the l-th root of the ratio counts. Networks have a
    ``width`` and ``depth``; a Gaussian matrix on a plane is one of two columns. The plane is so many ``directions`` of
    it; ranks are computed of as many if ``ranked``.
    """
    turns = torch.linspace(0, 2 * math.pi, spec.directions + 1, dtype=torch.float64)[:-1, None]
    found = np.empty((3, spec.networks, spec.depth))
    for index in range(spec.networks):
        h = torch.cat([turns.cos(), turns.sin()], dim=1).to(torch.float64 if spec.ranked else torch.float32)
        for layer in range(1, spec.depth + 1):
            law, source = Gaussian(math.sqrt(2 / spec.width)), generator(seed, spec.first + index, _WEIGHTS + layer)
            h = (h @ law.sample((spec.width, h.shape[1]), source).to(h.dtype).T).relu()
            ratio = torch.linalg.vector_norm(h, dim=1, dtype=torch.float64) ** (1 / layer)
            rank = float(torch.linalg.matrix_rank(h)) if spec.ranked else math.nan
            found[:, index, layer - 1] = float((ratio**2 - 1).abs().max()), float((ratio - 1).abs().max()), rank
    return dict(zip(("square", "norm", "rank"), found, strict=True))


def _each(spec: Spec, seed: int, of: Callable[[dict[str, NDArray[np.float64]]], dict[str, Any]]) -> dict[str, Any]:
    """Some numbers of each network, side by side: of its norms, and of what a layer makes of each."""
    found = []
    for network in range(spec.first, spec.first + spec.networks):
        parts = list(_norms(spec, seed, network))
        each = {name: torch.cat([part[name] for part in parts], dim=-1).numpy() for name in parts[0]}
        before = np.concatenate([each["input"][None], each["hidden"][:-1]])
        each["gradient"] = each["delta"] * before / (each["delta"][-1] * each["input"])
        found.append(of({**each, "step": (each["hidden"] / before) ** 2}))
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def _norms(spec: Spec, seed: int, network: int) -> Iterator[dict[str, Tensor]]:
    """Norms in one network, some inputs at a time: computed in float32, summed in float64."""
    stds, sizes = weight_stds(spec), (spec.size, *spec.widths, spec.classes)
    weights = [
        Gaussian(std).sample((sizes[layer + 1], sizes[layer]), generator(seed, network, _WEIGHTS + layer))
        for layer, std in enumerate(stds)
    ]
    inputs = torch.randn(spec.inputs, spec.size, generator=generator(seed, network, _INPUTS))
    labels = torch.randint(spec.classes, (spec.inputs,), generator=generator(seed, network, _LABELS))
    for x, wanted in zip(inputs.split(_AT_ONCE), labels.split(_AT_ONCE), strict=True):
        with torch.enable_grad():
            hidden, before, norms = x, list[Tensor](), list[Tensor]()
            for weight in weights[:-1]:
                pre = hidden @ weight.T
                if not before:
                    pre.requires_grad_()  # the graph begins here: no gradient of x, and none of a matrix, is computed
                before.append(pre)
                hidden = pre.relu()
                norms.append(_norm(hidden))
            # a softmax that is sure leaves an error of 1e-8, which float32 would round away
            logits = (hidden @ weights[-1].T).double()
            loss = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
            *deltas, error = torch.autograd.grad(loss, [*before, logits])
        yield {
            "input": _norm(x),
            "hidden": torch.stack(norms),
            "delta": torch.stack([_norm(delta) for delta in deltas]),
            "error": _norm(error),
            "product": (deltas[-1].double() * hidden.detach().double()).sum(1),
        }


def _norm(rows: Tensor) -> Tensor:
    """Euclidean norm of each row, float64."""
    norms: Tensor = torch.linalg.vector_norm(rows.detach(), dim=1, dtype=torch.float64)
    return norms


def law(spec: Spec, quantity: str, layer: int) -> NormRatio:
    """The law of the ratio ``"activation"`` or ``"gradient"``, for gradients that under Theorem 3's independence."""
    sizes = (spec.size, *spec.widths)
    if quantity == "activation":
        return NormRatio.forward(sizes[: layer + 1], spec.init)
    return NormRatio.gradient(sizes, layer, spec.init)


@functools.lru_cache(maxsize=1024)
def band(spec: Spec, quantity: str, layer: int) -> dict[str, float]:
    """Its mean, and where LEVEL of it is, which costs far more."""
    norm = law(spec, quantity, layer).norm
    low, high = (norm.quantile(p) for p in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return {"exact_mean": norm.mean, "exact_low": low, "exact_high": high}
