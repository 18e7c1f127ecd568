"""The two scores that ask no data: magnitude and chance (Hayou et al. 2021, sections 2.1 and E)."""

import torch
from torch import nn

from epoch0.prune.masks.places import Weight, standing
from epoch0.prune.scores.batches import check_settings
from epoch0.prune.scores.scores import Scores, listed, scores_of
from epoch0.seeds import generator

_CHANCE = 5


@listed()
def magnitude(model: nn.Module) -> Scores:
    """Score each weight by its absolute value, abs(W).

    >>> net = epoch0.networks.mlp([784, 256, 10], seed=0)
    >>> magnitude(net)["0.weight"].shape                            # of each weight's own shape
    torch.Size([256, 784])

    With Kaiming or mean-field weights a layer's scale is 1/sqrt(fan_in), so a global threshold empties the widest
    layers first (Proposition 4).

    Args:
        model: any module; see :func:`epoch0.prune.masks.places.prunable` for what is scored.

    Returns:
        Scores in the dtype of the weights.

    Raises:
        InputError: if the model has no prunable weight, or one holds NaN or is of half precision.

    Source: Hayou et al. 2021, sections 2.1 (MBP) and E.
    """
    weights = _checked(model)
    return scores_of(weights, [w.parameter.detach().abs() for w in weights], "magnitude")


@listed("seed")
def random(model: nn.Module, seed: int = 0) -> Scores:
    """Score each weight by chance: independent uniform numbers in (0, 1).

    >>> net = epoch0.networks.mlp([784, 256, 10], seed=0)
    >>> random(net, seed=0)["0.weight"].shape                       # of each weight's own shape
    torch.Size([256, 784])

    Args:
        model: any module.
        seed: of the numbers; the scores of a weight depend on the seed and the weight's place among the weights alone.

    Returns:
        Scores in float64, without ties in practice.

    Raises:
        InputError: if the model has no prunable weight, or the seed is no integer >= 0.

    Source: Hayou et al. 2021, Tables 2 and 3 (random pruning).
    """
    weights = _checked(model)
    drawn = []
    for place, w in enumerate(weights):
        uniform = torch.rand(w.parameter.shape, dtype=torch.float64, generator=generator(seed, _CHANCE, place))
        drawn.append(uniform.to(w.parameter.device))
    return scores_of(weights, drawn, f"random, seed {seed}")


def _checked(model: nn.Module) -> list[Weight]:
    check_settings(model, "eval", None)
    return standing(model)
