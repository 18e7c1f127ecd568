"""The best of many scores, exactly as many as asked for, ties by index (Hayou et al. 2021, section 2.1)."""

import torch
from torch import Tensor

SAMPLE = 1 << 14
"""Scores that a first guess at the threshold is taken from."""


def best(scores: Tensor, count: int) -> Tensor:
    """Which scores are among the ``count`` largest; of equal ones those that come first.

    >>> best(torch.tensor([0.5, 0.1, 0.5, 0.5]), 2)
    tensor([ True, False,  True, False])

    Args:
        scores: shape (weights,), finite.
        count: how many, from 0 to the number of weights.
    """
    dropped = len(scores) - count
    if dropped == 0 or count == 0:
        return torch.full_like(scores, dropped == 0, dtype=torch.bool)
    threshold = _smallest(scores, dropped)
    stay = scores > threshold
    missing = count - int(stay.sum())
    stay[(scores == threshold).nonzero().squeeze(1)[:missing]] = True
    return stay


def _smallest(scores: Tensor, rank: int) -> Tensor:
    """The score of this rank from below, exactly; quick where the rank is low, as in a round of many."""
    size = len(scores)
    if size > 8 * SAMPLE and rank < size // 4:
        sample = scores[:: size // SAMPLE]
        guess = sample.kthvalue(min(len(sample), 64 + 5 * len(sample) * rank // (4 * size))).values
        low = scores.masked_select(scores <= guess)
        if len(low) >= rank:
            return low.kthvalue(rank).values
    return scores.kthvalue(rank).values
