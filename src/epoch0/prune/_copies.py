"""A copy of a pruned model as a plain one, and another module in the place of one of its own (THEORY section 4)."""

import copy

from torch import nn

from epoch0.errors import InputError
from epoch0.prune._apply import bake


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy in eval mode with the masks baked in.

    Raises:
        InputError: if it cannot be copied.
    """
    try:
        return bake(copy.deepcopy(model)).eval()
    except (RuntimeError, TypeError) as problem:
        raise InputError(
            f"the model {type(model).__name__} cannot be copied: {problem}. If torch.nn.utils.prune masks it, "
            "bake(model) first."
        ) from problem


def replaced(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """The model with one module in place of another, wherever that one is used."""
    if not name:
        return module
    old = model.get_submodule(name)
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is old:
                parent._modules[key] = module.train(old.training)
    return model
