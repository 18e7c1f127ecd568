"""Which weights are kept: a frozen mapping of bool tensors that counts and saves (Hayou et al. 2021, 2.1)."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.initialization.files import check_path, load_tensors, save_tensors
from epoch0.results import Shown, counted

LAYOUT = "epoch0 masks 2"


@checked
class Masks(Mapping[str, Tensor], Shown):
    """Name of a weight -> bool tensor of its shape; True is kept.

    >>> masks = Masks({"fc.weight": torch.tensor([[True, False], [False, False]])})     # shape (2, 2)
    >>> masks.kept, masks.total, masks.sparsity
    (1, 4, 0.75)

    Names are those of ``model.named_parameters()`` before the model is pruned. The mapping cannot be changed; the
    tensors are copies, so that nobody else's change reaches them.
    """

    def __init__(self, masks: Mapping[str, Tensor]) -> None:
        self._masks: dict[str, Tensor] = {}
        for name, mask in masks.items():
            if mask.dtype != torch.bool:
                raise InputError(f"the mask '{name}' is {mask.dtype}; True is kept, so mask != 0 makes a bool one.")
            self._masks[name] = mask.detach().clone()
        if not self._masks:
            raise InputError("there are no masks in it; at least one weight needs one.")

    @classmethod
    def _own(cls, masks: dict[str, Tensor]) -> "Masks":
        """Without copies, of fresh tensors that nobody else holds."""
        made = cls.__new__(cls)
        made._masks = masks
        return made

    def __getitem__(self, name: str) -> Tensor:
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Masks):
            return NotImplemented
        same = (torch.equal(mask, other[name].to(mask.device)) for name, mask in self.items())
        return self.keys() == other.keys() and all(same)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content is big

    @property
    def total(self) -> int:
        """Number of weights."""
        return sum(mask.numel() for mask in self.values())

    @property
    def kept(self) -> int:
        """Number of weights kept."""
        return sum(self.kept_of.values())

    @property
    def density(self) -> float:
        """Fraction kept."""
        return self.kept / max(self.total, 1)

    @property
    def sparsity(self) -> float:
        """Fraction removed."""
        return 1.0 - self.density

    @property
    def kept_of(self) -> dict[str, int]:
        """Number of weights kept of each layer."""
        return {name: int(mask.count_nonzero()) for name, mask in self.items()}

    @property
    def density_of(self) -> dict[str, float]:
        """Fraction kept of each layer."""
        return {name: kept / max(self[name].numel(), 1) for name, kept in self.kept_of.items()}

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of the layers of which nothing is kept."""
        return tuple(name for name, kept in self.kept_of.items() if kept == 0)

    summary: ClassVar[Callable[..., Any]]  # what follows paths is bound here by epoch0.prune.effects.paths
    to_torch_prune: ClassVar[Callable[..., Any]]  # and by epoch0.prune.masks.apply

    def save(self, path: str | Path) -> Path:
        """Write the masks as safetensors of bools; the file appears whole or not at all.

        >>> masks.save("masks.safetensors")
        PosixPath('masks.safetensors')

        The ending must be ``.safetensors`` and the folder must exist; a file there is replaced.
        """
        return save_tensors(check_path(path, "masks"), "masks", LAYOUT, self, {})

    @classmethod
    def load(cls, path: str | Path) -> "Masks":
        """Read what :meth:`save` wrote.

        >>> Masks.load(masks.save("masks.safetensors")) == masks
        True
        """
        return cls(load_tensors(path, "masks", LAYOUT, "Masks.save")[0])

    def __str__(self) -> str:
        kept = f"{self.kept:,} of {counted(self.total, 'weight')} kept in {counted(len(self), 'layer')}"
        return f"{kept}, sparsity {self.sparsity:.4%}"

    def __repr__(self) -> str:
        return f"<Masks: {self}>"
