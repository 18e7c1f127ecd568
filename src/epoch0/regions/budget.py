"""The memory that a walk may fill, and how far it is (DESIGN: one walk, two shapes)."""

from collections.abc import Callable
from dataclasses import dataclass

from epoch0.errors import InputError

Progress = Callable[[float, str], None]
"""What is told of the progress: the part that is done, from 0 to 1, and what is being done."""


@dataclass
class Budget:
    """Cells so far, all parts together, and the bytes of memory their geometry may take, so many each."""

    layers: tuple[str, ...]
    memory: float
    progress: Progress | None
    cells: int = 1
    each: int = 400  # its share of vertices, edges, owners and lists, twice while parts are put together
    what: str = "cells"
    advice: str = "choose a smaller window, give more memory, or use regions.count"
    done: float = 0.0  # part of the whole walk

    def add(self, cells: int, step: int) -> None:
        """Count more cells; an InputError says that their geometry would not fit."""
        self.cells += cells
        if self.cells * self.each > self.memory:
            raise InputError(
                f"{self.cells} {self.what} were reached at layer '{self.layers[step]}', whose geometry takes more than "
                f"memory={self.memory:.3g} bytes; {self.advice}."
            )

    def advance(self, share: float, what: str) -> None:
        """So much more is done, as a part of the whole."""
        if self.progress is not None:
            self.done = min(self.done + share, 1.0)
            self.progress(self.done, f"{what}, {self.cells:,} {self.what}")
