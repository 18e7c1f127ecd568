"""What a model of the zoo is given: its inputs, its targets, and what a constant answer would cost it.

Every kind of data has a rule that a model can learn in a few steps: images carry the pattern of their class, tokens
follow from the one before, neighbours in a graph share their class. A batch is named by its number, so that training
can go on to fresh ones.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Draw = Callable[[int], tuple[Any, Any]]

CLASSES = 4
"""Classes that occur; heads have ten outputs."""

TOKENS = 16
"""Tokens that occur; vocabularies are larger."""


@dataclass
class Case:
    """A model, and how it is called.

    Attributes:
        model: with random weights.
        draw: the batch of that number and its targets, None where the model computes its own loss.
        constant: loss of the best answer that does not look at the inputs.
        loss: ``loss(outputs, targets)``, None for the default of the targets' type.
        forward: ``forward(model, batch)``, None where the batch is handed over as it is.
    """

    model: nn.Module
    draw: Draw
    constant: float
    loss: Callable[[Any, Any], Tensor] | None = None
    forward: Callable[[nn.Module, Any], Any] | None = None

    @property
    def batch(self) -> Any:
        """The first batch."""
        return self.draw(0)[0]

    @property
    def targets(self) -> Any:
        """Its targets."""
        return self.draw(0)[1]


def outputs_of(case: Case, batch: Any) -> Any:
    """The model called as its owner calls it."""
    if case.forward is not None:
        return case.forward(case.model, batch)
    if isinstance(batch, Mapping):
        return case.model(**batch)
    if isinstance(batch, tuple):
        return case.model(*batch)
    return case.model(batch)


def loss_of(case: Case, number: int) -> Tensor:
    """The loss of a batch, plainly: no code of epoch0 has a hand in it."""
    batch, targets = case.draw(number)
    if targets is None and case.forward is None and hasattr(case.model, "training_step"):
        found = case.model.training_step(batch, number)
        return found["loss"] if isinstance(found, Mapping) else found
    outputs = outputs_of(case, batch)
    if targets is None:
        return outputs if isinstance(outputs, Tensor) else outputs.loss
    if case.loss is not None:
        return case.loss(outputs, targets)
    scores = first_tensor(outputs).float()
    return F.mse_loss(scores, targets.float()) if targets.is_floating_point() else F.cross_entropy(scores, targets)


def first_tensor(outputs: Any) -> Tensor:
    """The tensor of an output that may be a tuple, a mapping or a dataclass."""
    while not isinstance(outputs, Tensor):
        outputs = next(iter(outputs.values())) if isinstance(outputs, Mapping) else outputs[0]
    return outputs


def _generator(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + number)


def _labels(count: int, number: int) -> Tensor:
    """As many of each class as of any other, in random order."""
    order = torch.randperm(count, generator=_generator(number))
    return (torch.arange(count) % CLASSES)[order]


def images(size: int, count: int = 16, channels: int = 3, dtype: torch.dtype = torch.float32) -> Draw:
    """Noise with a smooth pattern for each class; variance 1."""
    coarse = torch.randn(CLASSES, channels, 6, 6, generator=torch.Generator().manual_seed(7))
    patterns = F.interpolate(coarse, (size, size), mode="bilinear")
    patterns = patterns / patterns.std(dim=(1, 2, 3), keepdim=True)

    def draw(number: int) -> tuple[Tensor, Tensor]:
        labels = _labels(count, number)
        noise = torch.randn(count, channels, size, size, generator=_generator(number))
        return ((patterns[labels] + noise) / 2**0.5).to(dtype), labels

    return draw


def vectors(size: int, count: int = 64, dtype: torch.dtype = torch.float32) -> Draw:
    """The same, flat."""
    patterns = torch.randn(CLASSES, size, generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[Tensor, Tensor]:
        labels = _labels(count, number)
        return ((patterns[labels] + torch.randn(count, size, generator=_generator(number))) / 2**0.5).to(dtype), labels

    return draw


def sequences(length: int, size: int, count: int = 32) -> Draw:
    """A random walk with a drift for each class, differenced: (examples, length, size)."""
    drifts = torch.randn(CLASSES, 1, size, generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[Tensor, Tensor]:
        labels = _labels(count, number)
        return drifts[labels] * 0.5 + torch.randn(count, length, size, generator=_generator(number)), labels

    return draw


def waves(length: int, count: int = 8) -> Draw:
    """Sound of one pitch a class, with noise, as 16,000 values a second."""

    def draw(number: int) -> tuple[dict[str, Tensor], None]:
        labels = _labels(count, number)
        pitch = 220.0 * 2.0 ** labels[:, None]
        time = torch.arange(length) / 16000
        noise = 0.3 * torch.randn(count, length, generator=_generator(number))
        return {"input_values": torch.sin(2 * math.pi * pitch * time) * 2**0.5 + noise, "labels": labels}, None

    return draw


def text(length: int = 64, count: int = 4, first: int = 10) -> Tensor | Any:
    """Tokens where each decides the next: ids of shape (examples, length)."""
    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(7))
    successor = torch.empty(TOKENS, dtype=torch.long)
    successor[order] = order.roll(-1)

    def ids(number: int) -> Tensor:
        token = torch.randint(TOKENS, (count,), generator=_generator(number))
        found = [token]
        for _ in range(length - 1):
            token = successor[token]
            found.append(token)
        return torch.stack(found, 1) + first

    return ids


def language(length: int = 64, count: int = 4) -> Draw:
    """What a causal language model is given: ids, mask and labels in a mapping."""
    ids = text(length, count)

    def draw(number: int) -> tuple[dict[str, Tensor], None]:
        tokens = ids(number)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}, None

    return draw


def masked_language(length: int = 64, count: int = 8, mask: int = 4) -> Draw:
    """The same for a masked one: every sixth token is hidden and asked for."""
    ids = text(length, count)

    def draw(number: int) -> tuple[dict[str, Tensor], None]:
        tokens = ids(number)
        hidden = torch.rand(tokens.shape, generator=_generator(number)) < 1 / 6
        labels = torch.where(hidden, tokens, torch.full_like(tokens, -100))
        seen = torch.where(hidden, torch.full_like(tokens, mask), tokens)
        return {"input_ids": seen, "attention_mask": torch.ones_like(tokens), "labels": labels}, None

    return draw


def communities(nodes: int = 120, features: int = 32) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
    """Features, edges and classes of a graph whose nodes mostly know their own kind."""
    centres = torch.randn(CLASSES, features, generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[Tensor, Tensor, Tensor]:
        source, labels = _generator(number), _labels(nodes, number)
        same = labels[:, None] == labels[None, :]
        linked = torch.rand(nodes, nodes, generator=source) < torch.where(same, 0.15, 0.01)
        linked = (linked | linked.T).fill_diagonal_(False)
        x = centres[labels] * 0.5 + torch.randn(nodes, features, generator=source)
        return x, linked.nonzero().T.contiguous(), labels

    return draw


CHOICE = math.log(CLASSES)
"""Loss of a constant answer where the classes are equally frequent."""

NEXT = math.log(TOKENS)
"""The same for tokens."""
