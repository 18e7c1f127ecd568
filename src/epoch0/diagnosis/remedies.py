"""What to change: remedies are tried on a copy, and said only if they helped."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from epoch0.diagnosis.result import Remedy
from epoch0.diagnosis.rows import Rows
from epoch0.diagnosis.step import OPTIMIZERS, steps
from epoch0.diagnosis.trial import LENGTHS, Trial, trial
from epoch0.diagnosis.verdict import NAMES, Recipe, judge, sentence
from epoch0.errors import InputError
from epoch0.initialization.initialize import initialize
from epoch0.tracing.call import Call
from epoch0.tracing.tape import tape

WAYS: dict[str, dict[str, str]] = {
    "e0.initialize(model, x=batch)": {"method": "theory"},
    'e0.initialize(model, x=batch, method="measured")': {"method": "measured"},
}
"""The call, and its arguments."""

BETTER = 0.1  # by so much the chance of training has to rise


def try_remedies(
    call: Call, recipes: Mapping[str, Recipe], before: Trial | None, batch_norm: str, seed: int
) -> list[Remedy]:
    """Change copies of the model, and judge each as the model was judged."""
    start = max(recipe.probability for recipe in recipes.values())
    found: list[Remedy] = []
    for change, settings in WAYS.items():
        try:
            model = copy.deepcopy(call.model)
            given = {"seed": seed, "batch_norm": batch_norm, "forward": call.forward, **settings}
            initialize(model, x=call.batch, **given)  # type: ignore[arg-type]
            again = _judged(replace(call, model=model), before, batch_norm, seed)
        except (InputError, RuntimeError, TypeError):  # a remedy that cannot be tried is none
            continue
        after = max(recipe.probability for recipe in again.values())
        helps = any(recipe.trains for recipe in again.values()) and after >= start + BETTER
        found.append(Remedy(change, start, after, sentence(again), helps))
        if helps:
            break
    return found


def _judged(call: Call, before: Trial | None, batch_norm: str, seed: int) -> dict[str, Recipe]:
    first = steps(call, seed)
    with tape(call, batch_norm=batch_norm) as record:
        signs = Rows(record, 2, seed).signs
    done = None if before is None else trial(call, min(before.steps, LENGTHS[1]), seed=seed)
    return {optimizer: judge(first[optimizer], signs, done) for optimizer in OPTIMIZERS}


def advice(recipes: Mapping[str, Recipe], tried: Sequence[Remedy]) -> Iterator[str]:
    """One sentence for each thing to do."""
    trains = [recipe for recipe in recipes.values() if recipe.trains]
    if trains:
        best = max(trains, key=lambda recipe: recipe.probability)
        yield f"Begin with {NAMES[best.optimizer]} at a rate of about {best.learning_rate:g}; nothing has to change."
        return
    helped = [remedy for remedy in tried if remedy.helps]
    for remedy in helped:
        yield (
            f"{remedy.change}: tried on a copy, its chance to train is {remedy.after:.0%} instead of "
            f"{remedy.before:.0%}. {remedy.verdict}"
        )
    if helped:
        return
    if tried:
        yield f"Other weights do not mend it: {', '.join(r.change for r in tried)} tried on a copy did not help."
    cause = max(recipes.values(), key=lambda recipe: recipe.probability).cause
    if cause in ("no gradient", "overflow", "collapsed", "size"):
        yield "Look at the layer to blame, and at the size of the inputs, first."
