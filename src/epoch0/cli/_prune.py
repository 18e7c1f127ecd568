"""The command that prunes at initialization: score, keep, say what dies, rescale, save (Hayou et al. 2021)."""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epoch0.cli._models import Batch, BatchNorm, Data, InputShape, Model, Norm, Seed, Weights
from epoch0.cli._shared import DataDir, Json, command, print_json
from epoch0.errors import InputError
from epoch0.meter import Stages

if TYPE_CHECKING:
    from torch import nn

    from epoch0.models import Inputs
    from epoch0.prune import CriticalSparsity, Masks, Scores


class Score(StrEnum):
    """What a weight is worth."""

    snip = "snip"
    grasp = "grasp"
    synflow = "synflow"
    force = "force"
    obd = "obd"
    magnitude = "magnitude"
    random = "random"


class Scope(StrEnum):
    """Over what weights compete."""

    everywhere = "global"
    layer = "layer"


class Layers(StrEnum):
    """Densities of the layers, where each has its own."""

    uniform = "uniform"
    erk = "erk"


class Rescale(StrEnum):
    """How the kept weights are rescaled."""

    layer = "layer"
    row = "row"
    measured = "measured"


NEEDS_TARGETS = {Score.snip, Score.grasp, Score.force, Score.obd}
"""Scores that look at the loss."""

ROUNDS = {Score.synflow: 100, Score.force: 60}
"""Rounds of scores that their authors repeat; the others have one."""


def register(app: typer.Typer) -> None:
    """Put the command on the app."""
    command(app, name="prune")(prune)


def prune(
    model: Model,
    sparsity: Annotated[float, typer.Option(help="Fraction of the weights removed: exactly that many.")],
    score: Annotated[Score, typer.Option(help="What a weight is worth; the most worthy are kept.")] = Score.snip,
    scope: Annotated[Scope, typer.Option(help="One threshold for all layers, or one for each.")] = Scope.everywhere,
    layers: Annotated[
        Layers, typer.Option(help="With --scope layer: equal densities, or Erdos-Renyi-kernel ones.")
    ] = Layers.uniform,
    floor: Annotated[int, typer.Option(help="Weights that each layer keeps at least.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Rounds of scoring and removing. Default: 100 for synflow, 60 for force, else 1.")
    ] = None,
    rescale: Annotated[
        Rescale | None,
        typer.Option(help="Bring what is left to the edge of chaos: measured (best for snip), by layer, by row."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the masks to this safetensors file.")] = None,
    out_weights: Annotated[
        Path | None, typer.Option(help="Write the pruned (and rescaled) weights to this safetensors file.")
    ] = None,
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    batch: Batch = 128,
    batch_norm: Norm = BatchNorm.train,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Prune a model before training: which weights stay, when layers would die, and whether it still trains."""
    from epoch0 import models
    from epoch0 import prune as pruning
    from epoch0.initialization import check_path, save
    from epoch0.prune.masks.layers import check_sparsity

    files = {"masks": out, "weights": out_weights}
    written = [path.resolve() for path in files.values() if path is not None]
    if len(set(written)) < len(written):
        raise InputError(f"{str(written[0])!r} cannot hold two things; --out and --out-weights need own files.")
    for what, path in files.items():
        if path is not None:
            check_path(path, what)
    check_sparsity(sparsity)
    network = models.load_model(model, weights=weights, seed=seed)
    given = models.inputs_for(
        network, data=data_name, input_shape=input_shape, batch=batch, seed=seed, data_dir=data_dir
    )
    if given.targets is None and score in NEEDS_TARGETS:
        raise InputError(
            f"{score.value} looks at the loss, which needs classes: give --data with labels, or score by synflow, "
            f"magnitude or random. The inputs are {given.description}."
        )
    options: dict[str, Any] = {"scope": scope.value, "layers": layers.value, "floor": floor}
    check_steps(score, steps, options)
    rescaling = None
    with Stages("prune", 3 + 2 * (rescale is not None)) as stage:
        stage("judging the model as it is")
        judge = _Judge(given, batch_norm.value, seed)
        verdicts = {"before": judge.verdict(network)}
        stage(f"scoring by {score.value}")
        with told() as said:
            scores, masks = _masks(
                network, score, sparsity, given, batch_norm.value, seed, steps, options, stage.within
            )  # fmt: skip
        critical = pruning.critical_sparsity(scores)
        summary = masks.summary(network, given.x)
        pruning.apply(network, masks)
        stage("judging the pruned model")
        verdicts["pruned"] = judge.verdict(network)
        if rescale is not None:
            stage(f"rescaling ({rescale.value})")
            rescaling = pruning.rescale(network, method=rescale.value, x=given.x, seed=seed)
            stage("judging the rescaled model")
            verdicts["rescaled"] = judge.verdict(network)
        pruning.bake(network)
    # all or nothing: whatever cannot be done has failed by now
    if out is not None:
        masks.save(out)
    if out_weights is not None:
        save(network, out_weights)
    if as_json:
        print_json({
            "model": model, "inputs": given.description, "method": scores.method, "summary": summary.to_dict(),
            "critical_sparsity": float(critical), "first_layer_to_vanish": critical.layer, "notes": said,
            "verdicts": verdicts, "judged": judge.examined,
            "rescaling": None if rescaling is None else rescaling.to_dict(),
        })  # fmt: skip
        return
    typer.echo(f"{scores.method}; {given.description}")
    typer.echo(f"{summary}\n{_about(critical, score, steps)}")
    for note in said:
        typer.echo(f"note: {note}")
    if summary.dead or summary.effective == 0:
        typer.echo(f"what helps: {_what_helps(float(critical), score)}")
    if rescaling is not None:
        typer.echo(f"\n{rescaling}")
    typer.echo(f"\nverdicts ({judge.examined}):" if judge.examined else "")
    for when, verdict in verdicts.items():
        typer.echo(f"{when + ':':<10}{verdict}")
    for what, path in files.items():
        if path is not None:
            typer.echo(f"{what}: {path}")


def _masks(
    network: "nn.Module", score: Score, sparsity: float, given: "Inputs", batch_norm: str, seed: int,
    steps: int | None, options: dict[str, Any], progress: Callable[[float, str], None],
) -> "tuple[Scores, Masks]":  # fmt: skip
    """Scores of the model as it is, and the masks after all rounds."""
    from epoch0 import prune as pruning

    batches = [] if given.targets is None else [(given.x, given.targets)]
    rounds = ROUNDS.get(score, 1) if steps is None else steps
    if score is Score.force:
        scores = pruning.force(network, batches, sparsity, rounds, batch_norm=batch_norm, progress=progress)
        return scores, pruning.keep(scores, sparsity)
    one: Any = {
        Score.snip: functools.partial(pruning.snip, batches=batches, batch_norm=batch_norm),
        Score.grasp: functools.partial(pruning.grasp, batches=batches, batch_norm=batch_norm),
        Score.obd: functools.partial(pruning.obd, batches=batches, batch_norm=batch_norm),
        Score.synflow: functools.partial(pruning.synflow, x=tuple(given.x.shape[1:])),
        Score.magnitude: pruning.magnitude,
        Score.random: functools.partial(pruning.random, seed=seed),
    }[score]
    scores = one(network)
    masks = pruning.keep(scores, sparsity, **options) if rounds == 1 else pruning.iterate(
        network, one, sparsity, steps=rounds, progress=progress, **options
    )  # fmt: skip
    return scores, masks


def check_steps(score: Score, steps: int | None, options: dict[str, Any]) -> None:
    """Refuse what no round could do, before the model is looked at."""
    if steps is not None and steps < 1:
        raise InputError(f"steps={steps} is no number of rounds; use an integer >= 1, such as 100.")
    if score is Score.force and options != {"scope": "global", "layers": "uniform", "floor": 0}:
        raise InputError("--score force has one threshold for all layers; leave --scope, --layers and --floor out.")


class _Judge:
    """Says each time, on the same examples, whether the model as it is would train."""

    def __init__(self, given: "Inputs", batch_norm: str, seed: int) -> None:
        self.given, self.examined = given, "from the first step, without training"
        self.settings: dict[str, Any] = {"batch_norm": batch_norm, "seed": seed}

    def verdict(self, network: "nn.Module") -> str:
        """The verdict of a checkup from the first step alone."""
        from epoch0.diagnosis.checkup import checkup

        given = self.given
        try:
            found = checkup(network, given.x, given.targets, trial=False, remedies=False, directions=2, **self.settings)
            return found.verdict
        except InputError as problem:
            return f"cannot be judged: {problem}"


def _about(critical: "CriticalSparsity", score: Score, steps: int | None) -> str:
    """The critical sparsity in words."""
    rounds = ROUNDS.get(score, 1) if steps is None else steps
    when = "" if rounds == 1 else " if all were removed in one round"
    return f"critical sparsity {float(critical):.4%}{when}: {critical.layer} is the first layer to vanish"


def _what_helps(critical: float, score: Score) -> str:
    """What keeps layers alive, in words."""
    ways = [f"a sparsity below {critical:.4g}" if score not in ROUNDS else "a smaller sparsity", "--floor 1"]
    if score is not Score.synflow:
        ways.append("--score synflow, which scores again after every round")
    return f"{', '.join(ways)}, or weights at the edge of chaos first (epoch0 init, then --weights)"


@contextmanager
def told() -> Iterator[list[str]]:
    """Warnings of the library as notes, each once, in the order they came."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield said
    for warning in caught:
        if str(warning.message) not in said:
            said.append(str(warning.message))
