"""Twins of the pruning theory: autograd SNIP on dense networks, plain magnitudes, counting (no code of ours)."""

import math
from itertools import pairwise

import numpy as np
import torch

Scores = list[np.ndarray]


def snip_scores(
    weight_std: float, bias_std: float, widths: list[int], seed: int, examples: int = 100, activation=torch.tanh
) -> Scores:
    """|W dL/dW| of a dense network on normal inputs with random labels, float64; one array a layer."""
    g = torch.Generator().manual_seed(seed)
    weights = [
        (torch.randn(n_out, n_in, generator=g, dtype=torch.float64) * weight_std / math.sqrt(n_in)).requires_grad_()
        for n_in, n_out in pairwise(widths)
    ]
    biases = [torch.randn(n, generator=g, dtype=torch.float64) * bias_std for n in widths[1:]]
    h = torch.randn(examples, widths[0], generator=g, dtype=torch.float64)
    labels = torch.randint(widths[-1], (examples,), generator=g)
    for place, (w, b) in enumerate(zip(weights, biases, strict=True)):
        h = (activation(h) if place else h) @ w.T + b
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(h, labels), weights)
    return [(w * d).detach().abs().numpy() for w, d in zip(weights, gradients, strict=True)]


def counted_critical(scores: Scores) -> float:
    """s_cr by counting: the fraction of scores up to the least of the layers' largest ones."""
    weakest = min(float(one.max()) for one in scores)
    return sum(int((one <= weakest).sum()) for one in scores) / sum(one.size for one in scores)


def sorted_density(scores: Scores, sparsity: float) -> np.ndarray:
    """Fraction kept of each layer by one sort; shape (layers,)."""
    everything = np.concatenate([one.ravel() for one in scores])
    removed = round(sparsity * len(everything))
    threshold = np.partition(everything, removed)[removed]
    return np.array([(one >= threshold).mean() for one in scores])


def magnitudes(stds: list[float], weights: int, seed: int) -> Scores:
    """|W| of normal weights, one array a layer."""
    draw = np.random.default_rng(seed)
    return [np.abs(std * draw.standard_normal(weights)) for std in stds]
