"""What vouches for a count: the closest decision, the tolerance, and the identities that must hold."""

from dataclasses import asdict, dataclass

from epoch0.regions._sizes import Decisions


@dataclass(frozen=True)
class Certificate:
    """Evidence that comes with every partition.

    Attributes:
        tolerance: a pre-activation below this part of the size of the terms summed in it counted as zero.
        smallest: the smallest pre-activation that decided a sign, as a part of that size.
        zeros: pre-activations at existing points that counted as zero: boundaries that meet in one point.
        undecided: pieces left whole because rounding hid where a neuron changes its sign; 0 unless something is wrong.
        ordered: whether the break points of a line increase (None for a plane).
        euler: vertices - edges + cells of a plane partition: 1 (None for a line).
        measure_error: total length or area of the pieces against the whole, relative.
        distinct: whether all patterns differ (None where they were not compared).
    """

    tolerance: float
    smallest: float
    zeros: int
    undecided: int
    ordered: bool | None = None
    euler: int | None = None
    measure_error: float | None = None
    distinct: bool | None = None

    @property
    def holds(self) -> bool:
        """Whether every identity that was looked at holds and every piece was decided."""
        length = self.measure_error is None or abs(self.measure_error) < 1e-9
        topology = self.ordered is not False and self.euler in (None, 1) and self.distinct is not False
        return self.undecided == 0 and topology and length

    @staticmethod
    def of(decisions: Decisions, **identities: int | float | bool | None) -> "Certificate":
        """From the walk's decisions and the identities."""
        return Certificate(
            decisions.relative, decisions.smallest, decisions.zeros, decisions.undecided, **identities  # type: ignore[arg-type]
        )  # fmt: skip

    def to_dict(self) -> dict[str, float | int | bool | None]:
        """All fields and whether it holds."""
        return {**asdict(self), "holds": self.holds}

    def __str__(self) -> str:
        words = [
            f"closest decision |z| = {self.smallest:.1e} of its terms, tolerance {self.tolerance:.0e}",
            f"{self.zeros} met exactly" if self.zeros else "none met exactly",
        ]
        if self.ordered is not None:
            words.append("break points in order" if self.ordered else "break points NOT in order")
        if self.euler is not None:
            words.append(f"vertices - edges + cells = {self.euler}")
        if self.measure_error is not None:
            words.append(f"sizes add up to {self.measure_error:.0e}")
        if self.distinct is not None:
            words.append("patterns distinct" if self.distinct else "patterns NOT distinct")
        if self.undecided:
            words.append(f"{self.undecided} pieces UNDECIDED")
        return "; ".join(words)
