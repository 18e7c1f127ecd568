"""Raghu et al., "On the expressive power of deep neural networks": its figures."""

from epoch0.papers.raghu.figures import ARTIFACTS as ARTIFACTS
