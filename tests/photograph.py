"""A model as it was, to see that it comes back."""

import random

import numpy as np
import torch
from torch import nn


class Photograph:
    """Everything about a model and the random states that must come back, taken independently of the guard."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        named = [*model.named_parameters(), *model.named_buffers()]
        self.tensors = {name: (t, t.detach().clone(), t.requires_grad, t.grad, t._version) for name, t in named}
        self.grads = {name: t.grad.clone() for name, t in named if t.grad is not None}
        self.modes = [m.training for m in model.modules()]
        self.hooks = [
            (list(m._forward_hooks.items()), list(m._forward_pre_hooks.items()), list(m._backward_hooks.items()))
            for m in model.modules()
        ]
        self.keys = [list(m.__dict__) for m in model.modules()]
        self.torch, self.numpy, self.python = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002

    def check(self, python: bool = False) -> None:
        """Compare; python's random state only where no type checker, which draws from it, has run meanwhile."""
        named = dict([*self.model.named_parameters(), *self.model.named_buffers()])
        assert list(named) == list(self.tensors)
        for name, (tensor, bits, requires_grad, grad, _) in self.tensors.items():
            assert named[name] is tensor, name
            assert tensor.numpy(force=True).tobytes() == bits.numpy(force=True).tobytes(), name
            assert tensor.requires_grad == requires_grad and tensor.grad is grad, name
            assert grad is None or torch.equal(grad, self.grads[name])
        assert self.modes == [m.training for m in self.model.modules()]
        assert self.hooks == [
            (list(m._forward_hooks.items()), list(m._forward_pre_hooks.items()), list(m._backward_hooks.items()))
            for m in self.model.modules()
        ]
        assert self.keys == [list(m.__dict__) for m in self.model.modules()]
        assert torch.equal(self.torch, torch.get_rng_state())
        assert not python or self.python == random.getstate()
        now = np.random.get_state()  # noqa: NPY002
        assert all(np.array_equal(a, b) for a, b in zip(self.numpy, now, strict=True))
