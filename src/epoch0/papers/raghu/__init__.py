"""Raghu et al., "On the expressive power of deep neural networks": its figures."""
