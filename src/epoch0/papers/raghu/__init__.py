"""Raghu et al., "On the expressive power of deep neural networks": its figures."""

from epoch0.papers.raghu.boundaries import ARTIFACTS as ARTIFACTS
