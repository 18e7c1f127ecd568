"""The checkup: whether a network trains and with what, why, and which layer to look at (THEORY section 0).

It joins the gains of the layers, local and carried (Hayou section 2.2), with what one step of each optimizer does to
the outputs and with a short trial, where that takes seconds.
"""

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0 import prune
from epoch0.arguments import BatchNorm, Directions, Positive, Seed, Sparsity, checked
from epoch0.diagnosis import wording
from epoch0.diagnosis.faults import Evidence, apart, conclude, evidence, suspects
from epoch0.diagnosis.faults.changes import undropped
from epoch0.diagnosis.faults.mend import Tell, certain
from epoch0.diagnosis.result import Checkup, LayerCheckup, LayerOutlook, PruningForecast, Remedy
from epoch0.diagnosis.rows import measured, to_blame
from epoch0.diagnosis.step import COSTLY, OPTIMIZERS, steps
from epoch0.diagnosis.streaming import stream as stream_layers
from epoch0.diagnosis.trial import LENGTHS, SECONDS, NotCopied, TrialResult, affordable, constant_loss, same_targets
from epoch0.diagnosis.trial import trial as train_copies
from epoch0.diagnosis.verdict import NAMES, Recipe, Signs, assess, assess_program, fooled, sentence
from epoch0.errors import InputError
from epoch0.initialization.initialize import initialize
from epoch0.measure.gain import Gain
from epoch0.results import first_names
from epoch0.seeds import generator
from epoch0.tracing.call import Call, Forward, described, packed_in_any_order, parts
from epoch0.tracing.guard import ChangesItself, keeping_memory, unchanged
from epoch0.tracing.tape import tape

DIRECTIONS = {0.004: 8, 0.008: 4}
"""CPU seconds that a forward and backward pass takes at most -> number of directions in which layers are measured."""

SHORT = 0.005  # CPU seconds of a forward and backward pass up to which remedies are tried without a trial
WAYS = {"e0.initialize(model, x=batch)": "theory", 'e0.initialize(model, x=batch, method="measured")': "measured"}
BETTER = 0.1  # by so much the chance of training has to rise


@checked
@keeping_memory()
@packed_in_any_order()
@torch.inference_mode(False)
def checkup(
    model: nn.Module,
    batch: Any,
    targets: Any = None,
    *,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    data: Any = None,
    step: Callable[[Any, Any, Any, Any, Any], Any] | None = None,
    seconds: Positive = 60.0,
    forward: Forward | None = None,
    trial: bool | None = None,
    batches: Iterable[Any] | None = None,
    batch_norm: BatchNorm = "train",
    directions: Directions | None = None,
    sparsity: Sparsity | None = None,
    stream: bool | str | Path = False,
    remedies: bool | None = None,
    seed: Seed = 0,
    name: str | None = None,
    inputs: str | None = None,
    tell: Tell | None = None,
) -> Checkup:
    """Assess a network before its first epoch: does it train, with which optimizer and rate, and if not, why and where.

    >>> net = epoch0.networks.mlp([64, *[64] * 20, 10], weights=epoch0.Gaussian(1.0), seed=0)
    >>> found = checkup(net, x, y)                              # x of shape (100, 64), y of shape (100,)
    >>> found.recipes["adam"].trains, found.recipes["sgd"].reason
    (True, 'gradients shrink by 2.9 orders of magnitude on the way to the first layer (in 150 steps at the best ...')

    Args:
        model: any module, in whatever mode; it is given back unchanged to the bit.
        batch: what it is called with: a tensor of shape (examples, ...), a tuple, a mapping, a graph, see
            :class:`~epoch0.tracing.call.Call`; about 100 examples are enough.
        targets: classes (integers) or values (floats). Without them the loss is the model's own (the ``.loss`` that it
            returns, a ``training_step``), and without that targets are made up that a linear map of the inputs gives.
        loss: ``loss(outputs, targets) -> scalar``; by default cross-entropy for integers, mean square for floats.
        optimizer: the optimizer over this model, or all of them: faults of it are looked for; it is not stepped.
        data: the training examples, for faults: a DataLoader, a Dataset, a pair (inputs, targets) like those given, or
            a function that returns an iterator.
        step: ``step(model, optimizer, loss, x, y)``, the body of an unusual training loop, for faults.
        seconds: with an optimizer: CPU seconds in all, the time for trying changes included.
        forward: ``forward(model, batch) -> outputs``, for a model that is called in another way.
        trial: whether copies are trained for a few steps, for a surer verdict. None: where that takes less than 20 CPU
            seconds, and no program was given that learns when it is trained itself.
        batches: an iterable of (inputs, targets), such as a DataLoader, for the trial; by default it uses the batch.
        batch_norm: for gains: ``"train"``: batch statistics, running ones stay; ``"eval"``: running statistics.
        directions: random directions a layer, >= 2; errors fall with the root. Default: 8; 4 or 2 where a pass is slow.
        sparsity: also say what pruning this fraction of the weights by SNIP would leave of each layer.
        stream: measure one block after another, so that only one has its weights in memory, and no step; also a model
            on torch's ``meta`` device, with fresh weights or those of the folder given here; see docs/checkup.md.
        remedies: whether changes are tried on a copy where the network is not expected to train. None: with a trial,
            and without one where a pass takes less than 5 ms, as trying takes longer than the rest of the checkup.
        seed: of directions, held-out examples and dropout.
        name: what to call the model; its class by default.
        inputs: what the batch is, in words; its shapes by default.
        tell: a callback for progress: the part that runs, and the share of it that is done.

    Raises:
        InputError: if the model, the batch, the targets or their combination cannot be used.

    Source: Hayou et al. 2021, section 2.2 (gains, phases); docs/checkup.md (what the verdict reads, and how well).
    """
    say, started = tell or (lambda part, share: None), time.process_time()
    program: Evidence | None = None
    own = {"optimizer": optimizer, "data": data, "step": step}
    if stream:
        others = {**own, "batches": batches, "forward": forward, "sparsity": sparsity}
        others |= {"trial": trial or None, "remedies": remedies or None}
        if asked := [key for key, value in others.items() if value is not None]:
            raise InputError(f"{asked[0]}= needs the whole network in memory; leave it out with stream=True.")
        call = Call.of(model, batch, targets, loss=loss, empty=True)
    elif any(part is not None for part in own.values()) or hasattr(model, "configure_optimizers"):
        program = evidence(model, batch, targets, loss=loss, forward=forward, **own)
        call = program.call
    else:
        call = apart(Call.of(model, batch, targets, loss=loss, forward=forward))
    shapes = described(call.batch).removeprefix("an input").removeprefix(" of ").strip()
    head: dict[str, Any] = {"model": name or type(call.model).__name__, "subject": inputs or shapes}
    remarks = list(call.notes)

    def make_up(output: Tensor) -> Any:
        made, note = made_up(call.batch, output, seed)
        remarks.append(note)
        return made

    if stream:
        folder = None if stream is True else Path(stream)
        blocks = stream_layers(call, directions or 2, seed, batch_norm, make_up, say, folder, remarks)
        kept = blocks.kept({}, 1.0)
        remarks.append("Blocks were measured one after another.")
        notes = tuple(notes_of(blocks.gains, kept["layers"], remarks))
        why_not = "it needs the whole network in memory"
        return Checkup(**head, recipes={}, **kept, notes=notes, trial_reason=why_not, not_examined=LAYERS_ONLY)
    if invented := not call.has_loss:
        with unchanged(call.model), torch.no_grad():
            call.model.eval()
            call = dataclasses.replace(call, targets=make_up(call.output(call.run())))
    if same := _same(call):
        remarks.append(f"{same[0].upper()}{same[1:]}: give about 100 different examples.")

    def searched() -> tuple[dict[str, Recipe], bool, dict[str, Any]]:
        """The recipe of the program, whether those of the network tell nothing beside it, and fields about faults."""
        if program is None:
            asked = "Other faults of the program: pass its optimizer=, and data= or step= if you have them."
            return {}, False, {"not_examined": (asked,)}
        say("faults", 0.0)
        suspected = suspects(program)
        left = 0.0 if trial is False else max(seconds - (time.process_time() - started), seconds / 3)
        found = conclude(program, *suspected, left, say)
        seen = {"faults": found.faults, "not_examined": found.not_examined, "program": found.mending}
        several = len(program.optimizers) > 1 and step is not None
        meant = program.blind and not (program.reach is not None and math.isinf(program.reach.free))  # by the targets
        alone = several or program.untold or (program.lone and not meant)  # the loss is known to the body alone
        return assess_program(found, program.optimizers), bool(alone), seen

    say("one step of each optimizer", 0.0)
    recipes: dict[str, Recipe]
    try:
        first = steps(call, seed)
    except InputError as unmeasured:
        whole = call.divided(True)
        if program is None and whole.splits != call.splits:  # its model takes all examples, and not half of them
            call, first = whole, steps(whole, seed)
        elif program is None:
            with unchanged(call.model), torch.no_grad():
                call.loss(call.run())  # raises the same of the shapes that were given, not of half of them
            raise
        else:
            kinds = () if program.lone else OPTIMIZERS
            recipes = {kind: Recipe(kind, False, 0.01, 0.0, 0.0, str(unmeasured), "step 0", "fault") for kind in kinds}
            given = {"notes": (*remarks, f"The layers could not be measured: {unmeasured}"), **head}
            why_not = "the first step could not be measured"
            yours, alone, of_program = searched()
            return Checkup(**given, recipes=yours if alone else yours | recipes, **of_program, trial_reason=why_not)
    say("gains of the layers", 0.0)
    one = first["adam"]
    fewer, count = call, one.used  # a gain is a mean over examples and units
    if one.seconds > COSTLY:  # two at least, to see whether they differ
        count = max(2, 3 * count // 8)
    if call.splits and count < call.examples:
        fewer = call.rows(slice(0, count))
        step_of = f"one step was followed on {one.used}, and " if one.used < call.examples else ""
        some = f"{count} of the {call.examples} examples"
        remarks.append(f"As a pass takes long, {step_of}gains were measured on {some}.")
    rows = None
    floats = isinstance(call.batch, Tensor) and call.batch.is_floating_point()
    signs = Signs(input_size=float(call.batch.detach().square().mean().sqrt()) if floats else 1.0)
    try:
        with tape(fewer, batch_norm=batch_norm, still=True) as record:
            usual = next((many for limit, many in DIRECTIONS.items() if one.seconds <= limit), 2)
            rows = measured(record, directions or usual, seed)
            signs, inside = rows.signs, {name for row in rows.rows for name in row.weights}
            unseen = [op for op in record.ops if op.meaning.weighted and not {*op.weights} & inside]
            if unseen and len(parts(call.batch)) > 1:
                names = first_names(list(dict.fromkeys(op.module or "the model itself" for op in unseen)))
                remarks.append(f"Signals start at one of the inputs; what only others reach is in no row: {names}.")
    except ChangesItself:
        raise
    except (InputError, RuntimeError) as problem:  # a verdict needs the layers for the reason only
        if not isinstance(problem, InputError) and "not require grad" not in str(problem):
            raise
        remarks.append(f"The layers could not be measured: {problem}")
    pruning_forecast = None if sparsity is None else forecast_pruning(call, sparsity, batch_norm)
    length, why_not, done, wanted = None, "left out, as asked", None, "trial=True makes it all the same"
    yours, alone, of_program = searched()
    if trial is None and any(recipe.trains and recipe.evidence == "trial" for recipe in yours.values()):
        why_not = f"left out, as your program itself was trained, and learns; {wanted}"
    elif trial is None and alone:  # it would not be told
        why_not = f"left out, as the loss is known to your program alone; {wanted}"
    elif trial is not False:
        most = SECONDS if program is None else max(0.0, min(SECONDS, seconds - (time.process_time() - started)))
        a_step = one.seconds * max(1.0, min(64, call.examples) / max(one.examples, 1)) * 1.2
        length = affordable(a_step, most) or (LENGTHS[-1] if trial else None)
        why_not = "" if length else f"left out, as it would take more than {most:.0f} CPU seconds; {wanted}"
    if length is not None:
        beside = program or Evidence(call)
        if program is None and not (invented or same):  # beside a trial it costs nothing
            of_program["faults"] = certain(suspects(beside)[0])
        say("trial", 0.0)
        try:
            done = train_copies(call, length, batches=batches, seed=seed, tell=lambda share: say("trial", share))
        except NotCopied as problem_of_copy:
            if trial is True:
                raise
            why_not = str(problem_of_copy)
    if done is not None and done.untold is not None:
        text = f"neither the trial nor likeness to the others ({done.untold:.0%} of the pairs, chance 50%) tells it"
        text = f"Whether what it learns holds for other examples: {text}. Give more examples, or batches=loader."
        of_program["not_examined"] = (*of_program.get("not_examined", ()), text)
    known = None if done is None or done.constant is None else done.constant * (one.used if done.sums else 1)
    values = call.targets if isinstance(call.targets, Tensor) and call.targets.is_floating_point() else torch.zeros(1)
    far = float(values.double().square().mean().sqrt())
    signs = dataclasses.replace(signs, same=same, constant_loss=known, target_size=far)
    recipes = {name: assess(effect, signs, done, first["adam"]) for name, effect in first.items()}
    if done is None and call.targets is not None and not all(recipe.trains for recipe in recipes.values()):
        signs = dataclasses.replace(signs, constant_loss=constant_loss(call))
        recipes = {name: assess(effect, signs, done, first["adam"]) for name, effect in first.items()}
    kinds_found = {fault.kind for fault in of_program.get("faults", ())[:1]} & {"loss", "output activation"}
    if done is not None and kinds_found and beside.reach is not None and math.isinf(beside.reach.free):
        recipes = {name: fooled(recipe) for name, recipe in recipes.items()}
    trains, tried = any(recipe.trains for recipe in (recipes | yours).values()), list[Remedy]()
    if not trains and remedies is None and done is None and one.seconds > SHORT:
        remarks.append("No remedy was tried: without a trial that takes longer than the rest; see remedies=True.")
    elif not trains and remedies is not False and rows is not None and not same and program is None:
        say("remedies", 0.0)
        tried = try_remedies(call, recipes, done, batch_norm, seed)
    worst = max(recipes.values(), key=lambda recipe: recipe.probability)
    judged = yours if alone else yours | recipes
    kept, blame = {"backward": signs.backward, "forward": signs.forward}, None
    if rows is not None:
        kept = rows.kept(one.updates, recipes["adam"].learning_rate)
        blame = None if trains else to_blame(kept["layers"], worst.cause, signs)
        remarks = notes_of(rows.gains, kept["layers"], remarks)
    more: dict[str, Any] = {"remedies": tuple(tried), "notes": tuple(remarks), "trial": done, "trial_reason": why_not}
    silent = program is not None or of_program.get("faults") or not judged
    more["advice"] = () if silent else tuple(advice(judged, tried))
    return Checkup(**head, recipes=judged, **of_program, **kept, **more, blame=blame, pruning_forecast=pruning_forecast)


LAYERS_ONLY = (
    "What a step does to the outputs, the rates it stands, a trial and the curvature: they need all weights at once.",
    "The size of an optimizer's step in each layer: without a step there is no rate for it.",
)


def made_up(batch: Any, output: Tensor, seed: int) -> tuple[Tensor, str]:
    """Targets for these outputs, and what was made up."""
    if not output.dim():
        raise InputError("the model returns one number and has no part that returns more; return its outputs, too.")
    source = generator(seed, 0x7461)
    floats = (tensor for _, tensor in parts(batch) if tensor.is_floating_point())
    given = next((t for t in floats if t.dim() > 1 and len(t) == len(output)), None)
    if output.dim() == 2 and output.shape[1] > 1 and given is not None:
        flat = given.detach().flatten(1).double().cpu()
        flat = (flat - flat.mean(0)) / flat.std(0).clamp_min(1e-12) if len(flat) > 1 else flat
        made = (flat @ torch.randn(flat.shape[1], output.shape[1], generator=source, dtype=torch.float64)).argmax(1)
        note = "classes were made up that a random linear map of the inputs gives."
    elif output.dim() == 2 and output.shape[1] > 1:
        made, note = torch.randint(output.shape[1], (len(output),), generator=source), "classes were drawn at random."
    elif given is not None:
        made = _linear(given.detach().double().cpu(), output.shape, source).to(output.dtype)
        note = "values were made up that a random linear map of the inputs gives, to be met in mean square."
    else:
        made = torch.randn(output.shape, generator=source, dtype=output.dtype)
        note = "values were drawn at random, to be met in mean square."
    return made.to(output.device), f"No targets were given: {note}"


def _linear(x: Tensor, shape: torch.Size, source: torch.Generator) -> Tensor:
    """Values of this shape: of what lies at each place of maps or sequences, of all inputs where these have none."""
    x = (x - x.mean()) / x.std().clamp_min(1e-12)
    if x.dim() == len(shape) > 3:
        x = F.interpolate(x, shape[2:]).movedim(1, -1)
        return _mixed(x, shape[1], source).movedim(-1, 1)
    if x.shape[:-1] in (shape, shape[:-1]) and x.dim() > 2:
        return _mixed(x, shape[-1] if x.dim() == len(shape) else 1, source).reshape(shape)
    x = x.flatten(1)
    few = _mixed(x, min(x.shape[1], 16), source)  # as many numbers say all: an image of images would be a large map
    return _mixed(few, shape[1:].numel(), source).reshape(shape)


def _mixed(x: Tensor, count: int, source: torch.Generator) -> Tensor:
    """The last dimension under a random matrix that keeps its size."""
    drawn: Tensor = torch.randn(x.shape[-1], count, generator=source, dtype=x.dtype)
    return x @ drawn / math.sqrt(x.shape[-1])


def forecast_pruning(call: Call, sparsity: float, batch_norm: BatchNorm) -> PruningForecast:
    """What SNIP would leave of each layer at a sparsity, exactly for this batch and as expected (Hayou 2.2)."""
    given = [(call.batch, call.targets)]
    scores = prune.snip(call.model, given, loss=call.criterion, batch_norm=batch_norm, forward=call.forward)
    kept, critical = prune.keep(scores, sparsity).density_of, prune.critical_sparsity(scores)
    predicted, rows = prune.predicted_density(scores, sparsity), []
    for row in predicted.layers:
        status = "dies" if kept[row.layer] == 0 else "at risk" if row.layer in predicted.at_risk else "survives"
        numbers = (row.weights, kept[row.layer], row.density, row.vanishes, critical.layers[row.layer])
        rows.append(LayerOutlook(row.layer, *numbers, status))
    dying, at_risk = ([row.name for row in rows if row.status == word] for word in ("dies", "at risk"))
    text = f"no layer would be emptied{f', but {first_names(at_risk)} may' if at_risk else ''}"
    text = f"{first_names(dying)} would be emptied" if dying else text
    expected = predicted.critical_sparsity, predicted.critical_sparsity_sd
    first = f"{critical.layer}, at {critical:.4g} (expected {expected[0]:.3g} ± {expected[1]:.1g})"
    sentence = f"Pruned by SNIP to sparsity {sparsity:g}: {text}; the first to vanish is {first}."
    return PruningForecast(float(sparsity), tuple(rows), float(critical), critical.layer, *expected, sentence)


def try_remedies(
    call: Call, recipes: Mapping[str, Recipe], before: TrialResult | None, batch_norm: str, seed: int
) -> list[Remedy]:
    """Change copies of the model, and assess each as the model was."""
    start = max(recipe.probability for recipe in recipes.values())
    found: list[Remedy] = []
    for change, method in (WAYS | {"Leave dropout out": ""}).items():
        try:
            one = dataclasses.replace(call, model=copy.deepcopy(call.model))
            if method:
                initialize(one.model, x=call.batch, forward=call.forward, method=method, seed=seed)
            elif not undropped(one.model):
                continue
            first = steps(one, seed)
            with tape(one, batch_norm=batch_norm) as record:
                signs = measured(record, 2, seed).signs
            done = None if before is None else train_copies(one, before.steps, seed=seed)
        except (InputError, RuntimeError, TypeError):  # a remedy that cannot be tried is none
            continue
        again: dict[str, Recipe] = {name: assess(effect, signs, done, first["adam"]) for name, effect in first.items()}
        after = max(recipe.probability for recipe in again.values())
        helps = any(recipe.trains for recipe in again.values()) and after >= start + BETTER
        found.append(Remedy(change, start, after, sentence(again), helps))
        if helps:
            break
    return found


def advice(recipes: Mapping[str, Recipe], tried: Sequence[Remedy]) -> Iterator[str]:
    """What to do: begin with the best recipe, or with a remedy that helped on a copy."""
    if trains := [recipe for recipe in recipes.values() if recipe.trains]:
        best = max(trains, key=lambda recipe: recipe.probability)
        yield f"Begin with {NAMES[best.optimizer]} at a rate of about {best.learning_rate:g}; nothing has to change."
        return
    for item in (helped := [remedy for remedy in tried if remedy.helps]):
        chances = f"{wording.chance(item.after)} instead of {wording.chance(item.before)}"
        yield f"{item.change}: tried on a copy, its chance to train is {chances}. {item.verdict}"
    if tried and not helped:
        both, names = " and no dropout" * (len(tried) > len(WAYS)), ", ".join(r.change for r in tried)
        yield f"Other weights{both} do not mend it: {names} tried on a copy did not help."


def _same(call: Call) -> str:
    """Why the examples of the batch cannot be distinguished, in a clause; empty where they can."""
    wanted = call.targets
    one = isinstance(wanted, Tensor) and (wanted.numel() == 1 or (wanted.is_floating_point() and wanted.dim() <= 2))
    if call.examples == 1 and one:
        return "the batch holds one example, so there is nothing to tell apart"
    given = [tensor for _, tensor in parts(call.batch, call.model) if tensor.dim() and len(tensor) == call.examples]
    if call.splits and call.examples > 1 and given and all(bool((t == t[:1]).all()) for t in given):
        return "all examples have the same inputs, so there is nothing to tell them apart by"
    return "all targets are the same, so there is nothing to tell apart" if same_targets(call) else ""


BATCH_NORM = {
    "train": "Batch norm was measured as training sees it, by this batch's statistics; running ones are untouched.",
    "eval": "Batch norm was measured with its running statistics, as in evaluation; training sees other gains.",
}


def notes_of(measured: Gain, rows: Sequence[LayerCheckup], more: Sequence[str]) -> list[str]:
    """How it was measured, and what was seen beside the gains."""
    notes = [*more, *([BATCH_NORM[measured.batch_norm]] if measured.batch_norm else [])]
    notes += ["Dropout was off."] if measured.dropout else []
    start = "random directions at the output, as there is no loss" if measured.loss is None else "the loss"
    over = f"{measured.directions} random directions (seed {measured.seed}) on {measured.examples} examples"
    text = f"Each gain is the mean over {over}, ± its standard error; gradient norms start from {start}"
    notes.append(f"{text}. The model was given back unchanged.")
    if pooled := [f"{row.name} (over {row.averaged:g} places)" for row in rows if row.averaged > 1]:
        text = f"Average pooling in {', '.join(pooled)} is left out of the assessment: it divides gains by the places "
        notes.append(f"{text}once, whatever the weights, and gradients of shared weights add up over the places again.")
    known = [layer for layer in measured.layers if layer.predicted is not None]
    off = [layer for layer in known if "than predicted" in layer.agreement]
    if known and not off:
        which = "every layer" if len(known) == measured.depth else f"the {len(known)} layers that have a law"
        which = "the one layer that has a law" if len(known) == 1 < measured.depth else which
        notes.append(f"Measured gains are as predicted from the weights in {which}, within three standard errors.")
    if off:
        short = str.maketrans("", "", "()")  # "lower ×0.85"
        each = [f"{layer.name} ({layer.agreement.replace(' than predicted', '').translate(short)})" for layer in off]
        why = "large biases, weights that are not as random as the law takes them to be, or a very narrow layer"
        notes.append(f"The measured gain is not the predicted one in {first_names(each)}: {why}.")
    if mostly_dead := [f"{row.name} ({row.dead_units:.0%})" for row in rows if 0.5 < row.dead_units < 1]:
        notes.append(f"More than half of the units are zero for every example after {', '.join(mostly_dead)}.")
    return notes
