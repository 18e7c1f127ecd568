"""What a record is made of: operations, the tensors between them, and places with names (THEORY section 0)."""

from dataclasses import dataclass

from epoch0.activations import Activation


@dataclass(frozen=True)
class Node:
    """One tensor of the record, in one version (a change in place makes a new node).

    Attributes:
        index: its place in ``Tape.nodes``; the input is 0.
        op: index of the operation that made it, -1 for the input.
        shape: its shape in the recorded run.
        real: whether it is real floating point.
        depends: whether a derivative with respect to the input reaches it.
    """

    index: int
    op: int
    shape: tuple[int, ...]
    real: bool
    depends: bool


@dataclass(frozen=True)
class Op:
    """One call of a torch function.

    Attributes:
        index: its place in ``Tape.ops``.
        name: plain name, such as ``"linear"`` or ``"relu"``.
        module: qualified name of the innermost module it ran in, ``""`` for the model itself.
        inputs: nodes among its arguments.
        outputs: nodes it made, in order; a change in place may make one for each name of the tensor.
        results: how many of the outputs it returned (the rest are other names of a tensor changed in place).
        weights: parameters that take part, by qualified name.
        kind: ``"linear"``, ``"convolution"``, ... for a weighted operation, else ``""``.
        activation: the activation it is, if it is one and there is a rule for it.
        elementwise: whether it is an elementwise nonlinearity.
        gain: mean over output units of the sum of squared weights into the unit; NaN unless one linear map or
            convolution.
        fan_in: weights into one unit; 0 unless one linear map or convolution.
        cut: whether it depends on the input but no derivative goes through it (detach, a no_grad block).
        met: nodes whose tensor is first met among the arguments, as (place among the tensor arguments, node): it
            came from code that cannot be followed, or was changed under another name.
    """

    index: int
    name: str
    module: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: int
    weights: tuple[str, ...] = ()
    kind: str = ""
    activation: Activation | None = None
    elementwise: bool = False
    gain: float = float("nan")
    fan_in: int = 0
    cut: bool = False
    met: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Tap:
    """A place to measure at: a name for people and the node behind it."""

    name: str
    node: int
    activation: Activation | None = None


def use(name: str, count: int) -> str:
    """The name of the n-th use of something: the name itself, then ``"... (2nd use)"`` and so on."""
    if count == 1:
        return name
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(count % 10 if count % 100 not in (11, 12, 13) else 0, "th")
    return f"{name} ({count}{suffix} use)"
