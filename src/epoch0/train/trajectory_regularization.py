"""Trajectory regularization: a layer in the place of a batch norm (Raghu section 3.3)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.arguments import Std, checked
from epoch0.errors import InputError
from epoch0.results import Shown
from epoch0.tracing.guard import bare


@checked
class TrajectoryRegularization(nn.Module):
    """Multiply by a learnt lambda, and add scale * lambda * (current length / original length) to the loss.

    >>> net = nn.Sequential(nn.Linear(64, 100), TrajectoryRegularization(), nn.ReLU(), nn.Linear(100, 10))
    >>> loss = F.cross_entropy(net(x), y)                      # x of shape (100, 64); nothing is added here
    >>> loss.backward()                                        # the gradients are those of the loss and the penalty
    >>> penalty(net)                                           # what the last forward pass has added to the loss
    tensor(0.0100)

    Lengths are those of the piecewise linear curve through neighbouring examples of the minibatch, per segment; the
    original one is that of the first minibatch that is trained on. Training and evaluation compute the same outputs to
    the bit, and lambda begins at 1, where the layer is the identity.

    Each ``backward()`` that passes the layer in train mode trains on the penalty, in any loop, with any loss; the
    *value* of the loss does not show it: read :func:`penalty`. docs/trajectory-regularization tells why, and what to do
    with several backward passes before an update, a ``GradScaler``, or gradients of gradients.

    Attributes:
        multiplier: lambda, a parameter of shape ().
        original_segment: buffer, mean length of a segment in the first minibatch; 0 before. It is in the state dict.
        segment: buffer, the same of the last minibatch.
        penalty: buffer, what was added to the loss at the last forward pass.

    Raises:
        InputError: in train mode, for a minibatch of fewer than two examples (``drop_last=True`` avoids it). A first
            length of 0 adds nothing, and is set by the first above 0.

    Source: Raghu et al. 2017, section 3.3, Figure 11.
    """

    original_segment: Tensor
    segment: Tensor
    penalty: Tensor

    def __init__(self, scale: Std = 0.01) -> None:
        super().__init__()
        self.scale = float(scale)
        self.multiplier = nn.Parameter(torch.ones(()))
        for name in ("original_segment", "segment", "penalty"):
            self.register_buffer(name, torch.zeros(()), persistent=name == "original_segment")

    def forward(self, x: Tensor) -> Tensor:
        """Lambda times x, of shape (batch, ...)."""
        if not (self.training and torch.is_grad_enabled()):
            return x * self.multiplier
        if x.dim() == 0 or len(x) < 2:
            needs = "the curve through the examples of a minibatch needs at least two"
            ways = "Use larger batches, leave a last one of a single example out (drop_last=True), or model.eval()"
            raise InputError(f"a minibatch of shape {tuple(x.shape)}: {needs}. {ways}.")
        scaled: Tensor
        scaled, segment, original = _Regularized.apply(x, self.multiplier, self.original_segment, self.scale)
        with torch.no_grad():
            added = self.scale * self.multiplier * segment / _not_zero(original)
            for buffer, value in ((self.original_segment, original), (self.segment, segment), (self.penalty, added)):
                buffer.copy_(value)
        return scaled

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}"


def mean_segment(x: Tensor) -> Tensor:
    """Mean distance between neighbouring examples of x, shape (examples, ...)."""
    return _lengths(x[1:] - x[:-1]).mean()


def _lengths(steps: Tensor) -> Tensor:
    rest = tuple(range(1, steps.dim()))
    kind = torch.promote_types(steps.dtype, torch.float32)
    found: Tensor = torch.linalg.vector_norm(steps, dim=rest, dtype=kind) if rest else steps.abs().to(kind)
    return found


def _not_zero(x: Tensor) -> Tensor:
    return torch.where(x == 0, torch.ones_like(x), x)


class _Regularized(torch.autograd.Function):
    """x times lambda, with the penalty's gradient 1 in the backward pass; written out to save memory."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, multiplier: Tensor, original: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's output, the mean segment, and the original one, which is the mean segment if there was none."""
        segment = mean_segment(x).to(multiplier.dtype)
        return x * multiplier, segment, torch.where(original > 0, original, segment)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, multiplier, _, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(x, multiplier, output[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of loss + scale * multiplier * mean segment / original, by x and by the multiplier."""
        x, multiplier, original = ctx.saved_tensors
        above, weight = gradients[0], torch.full_like(original, ctx.scale) / _not_zero(original)
        steps = x[1:] - x[:-1]
        lengths = _lengths(steps)
        pull = (weight * multiplier / len(steps) / _not_zero(lengths)).to(x.dtype)  # a step of length 0 pulls nowhere
        steps = steps * pull.reshape(-1, *[1] * (x.dim() - 1))
        by_x = above * multiplier
        by_x[1:] += steps
        by_x[:-1] -= steps
        by_multiplier = (above * x).sum(dtype=multiplier.dtype) + weight * lengths.mean().to(multiplier.dtype)
        return by_x, by_multiplier, None, None


@checked
def penalty(model: nn.Module) -> Tensor:
    """What the layers of a model have added to the loss at their last forward pass in train mode, shape ().

    Without a gradient: the layers see to it themselves.
    """
    if not (layers := [part for part in model.modules() if isinstance(part, TrajectoryRegularization)]):
        raise InputError(f"the model {type(bare(model)).__name__} has no TrajectoryRegularization layer.")
    return torch.stack([layer.penalty for layer in layers]).sum(dim=0)


@dataclass(frozen=True)
class Replaced(Shown):
    """A model whose batch norms were replaced; another module only if it was a batch norm itself."""

    model: nn.Module
    names: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(name or "the model itself" for name in self.names)
        return f"{len(self.names)} batch norm{'s' * (len(self.names) > 1)} replaced: {names}"


@checked
def replace_batch_norm(model: nn.Module, scale: Std = 0.01) -> Replaced:
    """Put a :class:`TrajectoryRegularization` in the place of every batch norm of a model, in place.

    >>> net = e0.networks.resnet(20, stable=False, seed=0)
    >>> print(replace_batch_norm(net))
    21 batch norms replaced: bn1, layer1.0.bn1, ...
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)               # made afterwards: the lambdas are new
    >>> images, labels = torch.randn(4, 3, 32, 32), torch.arange(4)
    >>> F.cross_entropy(net(images), labels).backward()                     # trains on the penalties too

    BatchNorm1d, 2d, 3d, SyncBatchNorm and their subclasses; those shared by several places stay shared. Names, modes,
    devices and dtypes stay. It is meant for a model that is not trained yet: running statistics, weights and biases of
    the batch norms go, and nothing shifts in their place.

    Source: Raghu et al. 2017, section 3.3.
    """
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise InputError(f"the model is wrapped in {type(model).__name__}; replace its batch norms before wrapping it.")
    inner = bare(model)
    kind = nn.modules.batchnorm._BatchNorm
    places = [(name, part) for name, part in inner.named_modules(remove_duplicate=False) if isinstance(part, kind)]
    if not places:
        text = f"the model {type(inner).__name__} has no batch norm module to replace"
        hint = "calls of F.batch_norm in a forward are not seen: put TrajectoryRegularization() there yourself"
        raise InputError(f"{text}; {hint}.")
    made: dict[int, TrajectoryRegularization] = {}
    for name, part in places:
        if id(part) not in made:
            held = next((t for t in (part.weight, part.running_mean) if t is not None), torch.empty(0))
            made[id(part)] = TrajectoryRegularization(scale).to(held).train(part.training)
        if name:
            inner.set_submodule(name, made[id(part)])
    return Replaced(made.get(id(inner), model), tuple(name for name, _ in places))
