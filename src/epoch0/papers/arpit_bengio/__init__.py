"""Arpit & Bengio, "The benefits of over-parameterization at initialization in deep ReLU networks": its figures."""

from epoch0.papers.arpit_bengio.figures import ARTIFACTS as ARTIFACTS
