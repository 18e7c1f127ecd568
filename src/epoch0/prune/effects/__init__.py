"""What pruning does to a model: paths, layers that die, rescaling (Hayou et al. 2021, sections 2.2 and 2.3)."""
