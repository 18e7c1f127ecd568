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
        each: bytes that one of them takes.
        what: their name.
        advice: what else can be done than to give more memory.
        lock: parts may be cut by several threads.
    """

    layers: tuple[str, ...]
    memory: float
    cells: int = 1
    each: int = _BYTES
    what: str = "cells"
    advice: str = "choose a smaller window, give more memory, or use regions.count"
    lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, cells: int, step: int) -> None:
        """Count more cells.

        Raises:
            InputError: if their geometry would not fit.
        """
        with self.lock:
            self.cells += cells
        if self.cells * self.each > self.memory:
            raise InputError(
                f"{self.cells} {self.what} were reached at layer '{self.layers[step]}', whose geometry takes more than "
                f"memory={self.memory:.3g} bytes; {self.advice}."
            )
