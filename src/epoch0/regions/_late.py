"""Folds that are done late: by the step that reads their output, on the way, so that no tensor of it is ever made."""

from collections.abc import Mapping

from torch import Tensor

from epoch0.regions._complex import Complex
from epoch0.regions._sizes import Sizes
from epoch0.regions._steps import Affine, Fold, Program, Way
from epoch0.regions._watch import Watch


def all_plain(complex_: Complex, values: Tensor) -> bool:
    """Whether all rows are points, and of one network, on the CPU."""
    return not complex_.unbounded and complex_.network is None and values.device.type == "cpu"


def late_folds(program: Program, complex_: Complex, points: Tensor) -> dict[int, Fold]:
    """The folds whose output is never made, as all steps that read it fold on the way, by the slot of that output.

    The slot holds what goes into the fold. New points lie between neighbours with no face between them, so there the
    fold of a mean is the mean of the folds.

    Args:
        program: the network.
        complex_: the partition.
        points: its rows.
    """
    if not all_plain(complex_, points):
        return {}
    early = {s for step in program.steps if not isinstance(step, Affine) or step.streamed is None for s in step.inputs}
    folds = [step for step in program.steps if isinstance(step, Fold)]
    return {step.output: step for step in folds if step.output not in {*early, program.output}}


def way_of(step: Affine, late: Mapping[int, Fold], seen: Watch | None) -> Way:
    """What is done on the way through a step: late folds before, a look after."""
    first, *more = (late.get(slot) for slot in step.inputs)
    return Way(first, more[0] if more else None, seen, grows=True)


def watch_before(
    program: Program, index: int, complex_: Complex, rows: int, sizes: Sizes, number: int
) -> Watch | None:  # fmt: skip
    """What looks at the values that an affine step makes, if a fold at zero comes next.

    Args:
        program: the network.
        index: of the affine step.
        complex_: the partition.
        rows: how many it has.
        sizes: of the terms in every folding step.
        number: of the next folding step.
    """
    step, following = program.steps[index], program.steps[min(index + 1, len(program.steps) - 1)]
    if not isinstance(following, Fold) or following.inputs != (step.output,) or following.faces != (0.0,):
        return None
    return complex_.watch(rows, limit_of(sizes.squares[number], 0.0, complex_))


def limit_of(square: Tensor, face: float, complex_: Complex) -> Tensor:
    """Below which the distance of a value to a face counts as zero."""
    return (square + face * face).sqrt_() * complex_.decisions.relative
