"""The command that prunes at initialization: score, keep, say what dies, rescale, save (Hayou et al. 2021)."""

import functools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from epoch0.cli._models import Batch, Data, InputShape, Model, Norm, Seed, Weights
from epoch0.cli._shared import DataDir, Json, print_json
from epoch0.errors import InputError, suggest
from epoch0.meter import Stages

if TYPE_CHECKING:
    from torch import nn

    from epoch0.models import Inputs
    from epoch0.prune import Masks, Scores
    from epoch0.prune.scores.scores import Listed


def prune(
    model: Model,
    sparsity: Annotated[float, typer.Option(help="Fraction of the weights removed: exactly that many.")],
    score: Annotated[
        str, typer.Option(help="What a weight is worth: snip, grasp, synflow, force, obd, magnitude, random.")
    ] = "snip",
    scope: Annotated[
        Literal["global", "layer"], typer.Option(help="One threshold for all layers, or one for each.")
    ] = "global",
    layers: Annotated[
        Literal["uniform", "erk"], typer.Option(help="With --scope layer: equal densities, or Erdos-Renyi-kernel ones.")
    ] = "uniform",
    floor: Annotated[int, typer.Option(help="Weights that each layer keeps at least.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Rounds of scoring and removing. Default: 100 for synflow, 60 for force, else 1.")
    ] = None,
    rescale: Annotated[
        Literal["layer", "row", "measured"] | None,
        typer.Option(help="Bring what is left to the edge of chaos: measured (right for all masks), by layer, by row."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the masks to this safetensors file.")] = None,
    out_weights: Annotated[
        Path | None, typer.Option(help="Write the pruned (and rescaled) weights to this safetensors file.")
    ] = None,
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    batch: Batch = 128,
    batch_norm: Norm = "train",
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Prune a model before training: which weights stay, when layers would die, and whether it still trains."""
    from epoch0 import models
    from epoch0 import prune as pruning
    from epoch0.initialization import check_path, save
    from epoch0.prune.masks.keep import check_sparsity
    from epoch0.prune.scores.scores import TABLE

    files = {"masks": out, "weights": out_weights}
    written = [os.path.abspath(path) for path in files.values() if path is not None]
    if len(set(written)) < len(written):
        raise InputError(f"{str(written[0])!r} cannot hold two things; --out and --out-weights need own files.")
    for what, path in files.items():
        if path is not None:
            check_path(path, what)
    check_sparsity(sparsity)
    if score not in TABLE:
        raise InputError(f"--score {score} is not known; use {', '.join(TABLE)}.{suggest(score, TABLE)}")
    known = TABLE[score]
    network = models.load_model(model, weights=weights, seed=seed)
    given = models.inputs_for(
        network, data=data_name, input_shape=input_shape, batch=batch, seed=seed, data_dir=data_dir
    )
    if given.targets is None and known.needs_targets:
        raise InputError(
            f"{score} looks at the loss, which needs classes: give --data with labels, or score by synflow, "
            f"magnitude or random. The inputs are {given.description}."
        )
    options: dict[str, Any] = {"scope": scope, "layers": layers, "floor": floor}
    check_steps(known, steps, options)
    rounds, rescaling = known.rounds if steps is None else steps, None
    with Stages("prune", 3 + 2 * (rescale is not None)) as stage:
        stage("judging the model as it is")
        verdicts = {"before": _verdict(network, given, batch_norm, seed)}
        stage(f"scoring by {score}")
        arguments: dict[str, Any] = {"sparsity": sparsity, "seed": seed, "batch_norm": batch_norm}
        arguments |= {"batches": [(given.x, given.targets)], "x": tuple(given.x.shape[1:])}
        arguments |= {"steps": rounds, "progress": stage.within}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            scores, masks = _masks(network, known, arguments, options)
        said = list(dict.fromkeys(str(warning.message) for warning in caught))
        critical = pruning.critical_sparsity(scores)
        summary = masks.summary(network, given.x)
        pruning.apply(network, masks)
        stage("judging the pruned model")
        verdicts["pruned"] = _verdict(network, given, batch_norm, seed)
        if rescale is not None:
            stage(f"rescaling ({rescale})")
            rescaling = pruning.rescale(network, method=rescale, x=given.x, seed=seed)
            stage("judging the rescaled model")
            verdicts["rescaled"] = _verdict(network, given, batch_norm, seed)
        pruning.bake(network)
    # all or nothing: whatever cannot be done has failed by now
    if out is not None:
        masks.save(out)
    if out_weights is not None:
        save(network, out_weights)
    if as_json:
        told_of = {"model": model, "inputs": given.description, "method": scores.method, "summary": summary.to_dict()}
        limits = {"critical_sparsity": float(critical), "first_layer_to_vanish": critical.layer, "notes": said}
        judged = {"verdicts": verdicts, "judged": EXAMINED}
        print_json({**told_of, **limits, **judged, "rescaling": rescaling and rescaling.to_dict()})
        return
    typer.echo(f"{scores.method}; {given.description}")
    when = "" if rounds == 1 else " if all were removed in one round"
    typer.echo(
        f"{summary}\ncritical sparsity {float(critical):.4%}{when}: {critical.layer} is the first layer to vanish"
    )
    for note in said:
        typer.echo(f"note: {note}")
    if summary.dead or summary.effective == 0:
        typer.echo(f"what helps: {_what_helps(float(critical), score, known.rounds)}")
    if rescaling is not None:
        typer.echo(f"\n{rescaling}")
    typer.echo(f"\nverdicts ({EXAMINED}):")
    for when, verdict in verdicts.items():
        typer.echo(f"{when + ':':<10}{verdict}")
    for what, path in files.items():
        if path is not None:
            typer.echo(f"{what}: {path}")


def _masks(
    network: "nn.Module", known: "Listed", arguments: dict[str, Any], options: dict[str, Any]
) -> "tuple[Scores, Masks]":
    """Scores of the model as it is, and the masks after all rounds."""
    from epoch0 import prune as pruning

    one = functools.partial(known.function, **{name: arguments[name] for name in known.takes})
    scores, sparsity, steps = one(network), arguments["sparsity"], arguments["steps"]
    if steps == 1 or known.has_own_rounds:
        return scores, pruning.keep(scores, sparsity, **options)
    progress = arguments["progress"]
    return scores, pruning.iterate(network, one, sparsity, steps=steps, progress=progress, **options)


def check_steps(known: "Listed", steps: int | None, options: dict[str, Any]) -> None:
    """Refuse what no round could do, before the model is looked at."""
    if steps is not None and steps < 1:
        raise InputError(f"steps={steps} is no number of rounds; use an integer >= 1, such as 100.")
    if known.has_own_rounds and options != {"scope": "global", "layers": "uniform", "floor": 0}:
        name = known.function.__name__
        raise InputError(f"--score {name} has one threshold for all layers; leave --scope, --layers and --floor out.")


EXAMINED = "from the first step, without training"


def _verdict(network: "nn.Module", given: "Inputs", batch_norm: str, seed: int) -> str:
    """The verdict of a checkup from the first step alone."""
    from epoch0.diagnosis.checkup import checkup

    settings = dict[str, Any](batch_norm=batch_norm, seed=seed, directions=2, trial=False, remedies=False)
    try:
        return checkup(network, given.x, given.targets, **settings).verdict
    except InputError as problem:
        return f"cannot be judged: {problem}"


def _what_helps(critical: float, score: str, usual: int) -> str:
    """What keeps layers alive, in words."""
    ways = [f"a sparsity below {critical:.4g}" if usual == 1 else "a smaller sparsity", "--floor 1"]
    if score != "synflow":
        ways.append("--score synflow, which scores again after every round")
    return f"{', '.join(ways)}, or weights at the edge of chaos first (epoch0 init, then --weights)"
