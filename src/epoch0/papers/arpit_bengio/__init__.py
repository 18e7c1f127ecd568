"""Arpit & Bengio, "The benefits of over-parameterization at initialization in deep ReLU networks": its figures."""
