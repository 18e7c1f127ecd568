"""Mean-field theory: kernels at depth 100 of 512 inputs, the edge of chaos, a phase diagram; in CPU seconds."""

import math

import numpy as np
from clock import cpu_seconds

from epoch0.theory import mean_field
from epoch0.theory.mean_field.kernels import kernel

NETWORKS = {"relu": (math.sqrt(2), 0.0), "erf": (math.sqrt(2), 0.0), "tanh": (math.sqrt(1.700796), 0.2)}


def inputs(one_length: bool) -> np.ndarray:
    """512 Gaussian inputs of 784 numbers, float64, of their own lengths or of one."""
    x = np.random.default_rng(0).normal(size=(512, 784))
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True)) if one_length else x


def kernels() -> dict[str, dict[str, float]]:
    """NNGP and NTK at depth 100, and what 100 layers cost over what 50 do."""
    rows = {}
    for name, (weight_std, bias_std) in NETWORKS.items():
        for one_length in (True, False):
            x, cost = inputs(one_length), {}
            for depth in (50, 100):
                cost[depth] = cpu_seconds(
                    lambda x=x, name=name, w=weight_std, b=bias_std, depth=depth: kernel(
                        x, activation=name, weight_std=w, bias_std=b, depth=depth
                    ),
                    3,
                )
            label = f"{name}, inputs of {'one length' if one_length else 'their own lengths'}"
            rows[label] = {"seconds": cost[100], "ratio": cost[100] / cost[50]}
    return rows


def edges_of_chaos() -> float:
    """100 points for tanh."""
    stds = np.linspace(0.01, 1.0, 100).tolist()
    return cpu_seconds(lambda: [mean_field.edge_of_chaos("tanh", bias_std=std) for std in stds], 3)


def phase_diagram() -> float:
    """200 x 200 points for tanh."""
    stds = np.linspace(0.1, 3.0, 200)
    return cpu_seconds(lambda: mean_field.phase_diagram("tanh", stds, np.linspace(0.0, 1.0, 200)), runs=1)


def main() -> None:
    """Print the seconds."""
    for label, row in kernels().items():
        print(
            f"NNGP and NTK, 512 inputs, depth 100, {label}: {row['seconds']:.2f} CPU s (at most 0.5), "
            f"{row['ratio']:.2f} times depth 50"
        )
    print(f"edge of chaos of tanh, 100 points: {edges_of_chaos():.2f} CPU s (at most 1)")
    print(f"phase diagram of tanh, 200 x 200: {phase_diagram():.2f} CPU s (at most 5)")


if __name__ == "__main__":
    main()
