"""Prune a network at initialization: score its weights, keep the best, rescale what is left (Hayou et al. 2021)."""
