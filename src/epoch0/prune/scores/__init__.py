"""Scores of weights: the larger, the more worth keeping (Hayou et al. 2021, section 2.1)."""
