"""How many cells a partition may have within the memory the user gives it."""

from dataclasses import dataclass, field
from threading import Lock

from epoch0.errors import InputError

_BYTES = 400  # of one cell: its share of vertices, edges, owners and lists, twice while parts are put together


@dataclass
class Ledger:
    """Cells so far, all parts together.

    Attributes:
        layers: names of the folding steps.
        memory: bytes the geometry may take.
        cells: how many there are.
        lock: parts may be cut by several threads.
    """

    layers: tuple[str, ...]
    memory: float
    cells: int = 1
    lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, cells: int, step: int) -> None:
        """Count more cells.

        Raises:
            InputError: if their geometry would not fit.
        """
        with self.lock:
            self.cells += cells
        if self.cells * _BYTES > self.memory:
            raise InputError(
                f"{self.cells} cells were reached at layer '{self.layers[step]}', whose geometry takes more than "
                f"memory={self.memory:.3g} bytes; choose a smaller window, give more memory, or use regions.count."
            )
