"""What the walk needs of a line or plane partition."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from epoch0.regions._cut import Cut
from epoch0.regions._sizes import Decisions
from epoch0.regions._steps import Largest
from epoch0.regions._watch import Watch


@runtime_checkable
class Complex(Protocol):
    """What the walk needs of a line or plane partition."""

    decisions: Decisions
    away: Tensor
    unbounded: bool

    @property
    def network(self) -> Tensor | None:
        """Network of each row, where there are many."""
        ...

    def watch(self, rows: int, tolerance: Tensor) -> Watch | None:
        """Looks at values as they are made, if that is of use for a cut."""
        ...

    def cut(
        self, values: Tensor, tolerance: Tensor, step: int, width: int, face: int | None = None,
        seen: Watch | None = None,
    ) -> Cut | None:  # fmt: skip
        """Cut wherever a column of values changes its sign; ``seen`` has looked at the values already."""
        ...

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """Take back what a maximum cut where no window has a tie; the rows kept, if any went."""
        ...

    def split(self, parts: int) -> Sequence["Part"]:
        """Parts that can be cut independently, with their rows here; none if it cannot be split."""
        ...

    def join(self, parts: Sequence[Any]) -> Any:
        """The whole, made of its parts after they were cut."""
        ...


Part = tuple[Any, Tensor]
"""A part of a complex, and the rows it has there."""
