"""Weights into a safetensors file: whole or not at all, no code inside (THEORY section 3 sets them)."""

from pathlib import Path

from torch import nn

from epoch0.initialization._tensor_files import written
from epoch0.tracing.guard import bare


def save(model: nn.Module, path: str | Path) -> Path:
    """Write the model's state as safetensors.

    >>> save(net, "weights.safetensors")                        # every parameter and buffer, in its own shape
    PosixPath('weights.safetensors')

    The file appears whole or not at all: it is written beside its place under another name and then renamed. A tensor
    under several names is stored once.

    Args:
        model: any module.
        path: where to; the ending must be ``.safetensors`` and the folder must exist. A file that is there is replaced.

    Returns:
        The path.

    Raises:
        InputError: if the ending or the folder is wrong, or the file cannot be written.
    """
    from safetensors.torch import save_model

    return written(path, "weights", lambda fresh: save_model(bare(model), str(fresh)))
