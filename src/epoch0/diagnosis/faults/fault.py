"""What a fault is, and the words for what its cure changes."""

from dataclasses import dataclass

KINDS = (
    "output activation", "hidden activation", "loss", "learning rate", "optimizer", "input scale", "target scale",
    "initialization", "architecture", "regularization", "normalization", "batch size", "training length", "labels",
    "shapes", "gradient flow", "update", "data",
)  # fmt: skip
"""What a cure changes: the kinds of faults."""


@dataclass(frozen=True)
class Fault:
    """Why a program does not learn.

    >>> print(Fault("update", "optimizer", "The learning rate is 0.", "Give a rate above 0.", certainty=0.95))
    update (optimizer): The learning rate is 0. Give a rate above 0.

    Attributes:
        kind: what the cure changes, one of :data:`KINDS`.
        where: a module path, "loss", "optimizer", "inputs", "targets", "outputs" or "step".
        message: one sentence with the numbers that show it.
        fix: what to write instead, and what that gave where it was tried on a copy.
        evidence: "step 0", seen without training anything but five steps of a copy, or "mended on a copy".
        certainty: between 0 and 1, the higher the more certain.
    """

    kind: str
    where: str
    message: str
    fix: str
    evidence: str = "step 0"
    certainty: float = 0.5

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind

    def __str__(self) -> str:
        return f"{self.kind} ({self.where}): {self.message} {self.fix}"
