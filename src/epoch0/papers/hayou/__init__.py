"""Hayou, Ton, Doucet & Teh, "Robust pruning at initialization" (ICLR 2021): the figures and tables without training."""
