"""Masks: which weights are kept, found from scores and put on a model (Hayou et al. 2021, section 2.1)."""
