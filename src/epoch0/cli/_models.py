"""Commands on a user's model: what it is before training, the weights it should start from, its regions, pruning."""

import functools
import os
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from epoch0.cli._shared import DataDir, Json, check_picture, print_json, save_picture
from epoch0.errors import InputError, reworded, suggest
from epoch0.files import to_write
from epoch0.progress import FractionProgress

if TYPE_CHECKING:
    from torch import Tensor, nn

    from epoch0.models import Inputs

Model = Annotated[
    str,
    Argument(
        help="path.py:callable or package.module:callable that gives a torch module, or for checkup a mapping of "
        "model, optimizer, loss, data, ...; it is your code, it is run. "
        "Or one of a library, with random weights: timm:resnet50, torchvision:vit_b_16, hf:path/to/config.json."
    ),
]
Data = Annotated[str | None, Option("--data", help="digits, mnist, fashion-mnist, cifar10 or a path.npz with x and y.")]
InputShape = Annotated[str | None, Option(help="Gaussian inputs of this shape, such as 784 or 3,32,32.")]
Weights = Annotated[Path | None, Option(help="A safetensors file with the weights; never a pickle.")]
BatchOrFile = Annotated[
    str | None,
    Option(
        "--batch",
        help="Number of inputs; or a file.npz or file.safetensors with the whole batch: x and y, or the names of the "
        "model's arguments.",
    ),
]
How = Literal["theory", "measured"]
Seed = Annotated[int, Option(help="Names the random directions, inputs and weights.")]
Points = "Each is the number of an example of the data, origin, or coordinates with commas."
Trial = Annotated[bool | None, Option("--trial/--no-trial", help="Train copies a little; default where that is quick.")]
Norm = Annotated[Literal["train", "eval"], Option(help="Batch norm as training sees it, or by running statistics.")]


def checkup(
    model: Model,
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    batch: BatchOrFile = None,
    batch_norm: Norm = "train",
    directions: Annotated[int | None, Option(help="Random directions a layer; more make the errors smaller.")] = None,
    sparsity: Annotated[float | None, Option(help="Also say what pruning this fraction leaves, what dies.")] = None,
    stream: Annotated[bool, Option("--stream", help="Measure hf:config.json one block at a time.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="With --stream: only say the memory and time it takes.")] = False,
    seed: Seed = 0,
    html: Annotated[Path | None, Option(help="Also write one self-contained page with pictures.")] = None,
    fix: Annotated[Path | None, Option(help="Write initialized weights to this safetensors file; check again.")] = None,
    method: Annotated[How, Option(help="With --fix: scales by theory, or as measured.")] = "theory",
    trial: Trial = None,
    depth: Annotated[int | None, Option(min=0, help="Levels of parts to print under a block; default as fits.")] = None,
    fail_on: Annotated[
        Literal["hard", "fault", "never"],
        Option(help="Leave with exit code 1 if the verdict is this or worse, or a fault is found, for a CI job."),
    ] = "never",
    seconds: Annotated[float, Option(min=0, help="CPU seconds for a program, with trying changes.")] = 60.0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell what a model is before training: whether it trains, why, where, and what to change."""
    import torch

    from epoch0 import models
    from epoch0.diagnosis import checkup as examine
    from epoch0.initialization import initialize, save

    for path, kind, endings in ((fix, "weights", [".safetensors"]), (html, "page", [])):
        if path is not None:
            to_write(path, kind, endings)
    if stream and (not model.startswith("hf:") or fix or fail_on != "never"):
        raise InputError("--stream takes hf:config.json, and no --fix or --fail-on.")
    if dry_run and not stream:
        raise InputError("--dry-run says what --stream would take; give both.")
    with torch.device("meta") if stream else nullcontext():  # without memory for weights
        program = models.load_program(model, weights=None if stream else weights, seed=seed)
    network = program.pop("model")
    if program:
        if (data_name, input_shape, batch) != (None, None, None):
            raise InputError(f"{model!r} brings its own data; leave out --data, --input-shape and --batch.")
        given = models.Inputs(program.pop("batch"), program.pop("targets", None), f"the data of {model}")
    else:
        given = models.inputs_for(
            network, data=data_name, input_shape=input_shape, batch=batch, spec=model, seed=seed, data_dir=data_dir
        )
    settings = dict[str, Any](batch_norm=batch_norm, trial=trial, remedies=None if fix is None else False, seed=seed)
    settings |= {"name": model, "inputs": given.description, "seconds": seconds, "directions": directions}
    settings |= {"sparsity": sparsity, "stream": weights if stream and weights else stream, **program}
    if dry_run:
        from epoch0.diagnosis.checkup import made_up
        from epoch0.diagnosis.streaming import plan
        from epoch0.tracing.call import Call

        call = Call.of(network, given.x, given.targets, empty=True)
        typer.echo(str(plan(call, lambda output: made_up(call.batch, output, seed)[0], directions or 2, seed, weights)))
        return

    def examined() -> Any:
        with FractionProgress("checkup") as shown:
            return examine(network, given.x, given.targets, tell=lambda part, share: shown(share, part), **settings)

    found = last = examined()
    if fix is not None:
        done, last = initialize(network, method=method, x=given.x, seed=seed), examined()
        save(network, fix)
        found = found.compare(last)
    if html is not None:
        last.to_html(html)
    if as_json:
        print_json(found.to_dict() if fix is None else {"initialization": done.to_dict(), **found.to_dict()})
    elif fix is None:
        last.print(depth=depth)
    else:
        typer.echo(f"{done}\n")
        found.print()
        typer.echo(f"weights: {fix}")
    if html is not None and not as_json:
        typer.echo(f"page: {html}")
    at_fault = last.faults if fail_on == "fault" else ()
    if at_fault or (fail_on == "hard" and not last.trains) or (fail_on == last.outcome == "fault"):
        typer.echo(f"failed: {at_fault[0] if at_fault else last.verdict}", err=True)
        raise typer.Exit(1)


def init(
    model: Model,
    out: Annotated[Path, Option(help="Safetensors file for the weights.")] = Path("weights.safetensors"),
    at: Annotated[str, Option(help="edge-of-chaos, or the gain chi that every layer is to have.")] = "edge-of-chaos",
    method: Annotated[How, Option(help="Scales by each layer's law, or as the batch shows.")] = "theory",
    bias_std: Annotated[float | None, Option(help="sigma_b: 0 by default; gaussian or uniform: 0.2 for tanh.")] = None,
    draw: Annotated[
        Literal["mirrored", "gaussian", "uniform", "orthogonal", "keep"],
        Option(help="What fresh weights are drawn from; keep: rescale those there are."),
    ] = "mirrored",
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    batch: BatchOrFile = None,
    batch_norm: Norm = "train",
    trial: Trial = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Write the weights a model should start from: every layer's gain set, at the edge of chaos or where you say."""
    from epoch0 import models
    from epoch0.diagnosis import checkup as examine
    from epoch0.initialization import check_path, initialize, save

    check_path(out)
    with reworded(lambda _: InputError(f"--at {at!r} is neither edge-of-chaos nor a gain chi, such as 1.1.")):
        chi = None if at.replace("_", "-") == "edge-of-chaos" else float(at)
    network = models.load_model(model, weights=weights, seed=seed)
    given = models.inputs_for(
        network, data=data_name, input_shape=input_shape, batch=batch, spec=model, seed=seed, data_dir=data_dir
    )
    settings = dict[str, Any](name=model, inputs=given.description, batch_norm=batch_norm, trial=trial, seed=seed)
    before = examine(network, given.x, given.targets, remedies=False, **settings)
    done = initialize(network, x=given.x, chi=chi, method=method, bias_std=bias_std, weights=draw, seed=seed)
    after = examine(network, given.x, given.targets, remedies=False, **settings)
    save(network, out)
    if as_json:
        print_json({"initialization": done.to_dict(), "before": before.to_dict(), "after": after.to_dict()})
    else:
        typer.echo(f"{done}\nbefore: {before.verdict}\nnow:    {after.verdict}\nweights: {out}")


def regions(
    model: Model,
    line: Annotated[tuple[str, str] | None, Option(help=f"A line between two points. {Points}", metavar="A B")] = None,
    plane: Annotated[
        tuple[str, str, str] | None,
        Option(help="Three points, the square around the circle through them.", metavar="A B C"),
    ] = None,
    kind: Annotated[Literal["segment", "ray", "line"], Option(help="--line: A to B, past B, both ways.")] = "segment",
    margin: Annotated[float, Option(help="With --plane: half the side, in radii of the circle.")] = 1.0,
    count_only: Annotated[bool, Option("--count-only", help="The number alone, without geometry: faster.")] = False,
    plot: Annotated[Path | None, Option(help="With --plane: draw the regions into this PNG, SVG or PDF file.")] = None,
    memory: Annotated[float, Option(help="Bytes to use, about; larger work is split.")] = 2e9,
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Exact linear regions of a piecewise linear network on a line or a plane, with the certificate of the count."""
    from epoch0 import regions as exact
    from epoch0.models import inputs_for, load_model

    if (line is None) == (plane is None):
        raise InputError("say where: --line A B or --plane A B C, one of them.")
    if plot is not None and (plane is None or count_only):
        raise InputError("--plot draws a plane with its geometry; give --plane A B C, without --count-only.")
    if plot is not None:
        check_picture(plot)
    network, work = load_model(model, weights=weights, seed=seed).eval(), dict[str, Any](memory=memory)
    given = inputs_for(network, data=data_name, input_shape=input_shape, batch=10_000, seed=seed, data_dir=data_dir).x
    if isinstance(given, dict):
        raise InputError(f"regions lie among the inputs of a model of one input; this one takes {', '.join(given)}.")
    given = given.double()
    where = [_point(text, given) for text in line or plane or ()]
    with FractionProgress("regions") as work["progress"]:
        found: Any
        if plane is None:
            lines: Any = exact.on_line(network, *(point[None] for point in where), kind=kind, **work)  # surely a batch
            found = lines[0]
            number = found.count
        elif count_only:
            number = exact.count(network, exact.through(*where, margin=margin), **work)
        else:
            found = exact.on_plane(network, exact.through(*where, margin=margin), **work)
    if count_only:
        print_json({"regions": number}) if as_json else typer.echo(f"{number} region{'s' * (number != 1)}")
        return
    if plot is not None:
        save_picture(found.plot(), plot)
    certificate = found.certificate if plane is None else found.verify()
    if as_json:
        numbers = {"regions": found.count, "linear_regions": found.linear_count, "neurons": found.neurons}
        numbers["per_layer"] = dict(zip(found.layers, found.per_layer, strict=True))
        if plane is None:
            owners = zip(found.breakpoints.tolist(), found.owner, strict=True)
            names = ("t", "layer", "neuron", "face")
            numbers["breakpoints"] = [dict(zip(names, (t, *owner), strict=True)) for t, owner in owners]
        else:
            numbers |= {"vertices": len(found.vertices), "edges": len(found.edges), "area": found.window.area}
        print_json({**numbers, "certificate": certificate.to_dict(), "notes": list(found.notes)})
        return
    distinct = "; all patterns differ" if certificate.distinct else "; patterns REPEAT"
    typer.echo(f"{found}\n  linear regions: {found.linear_count}{distinct if plane is not None else ''}")
    if plot is not None:
        typer.echo(f"picture: {plot}")


def _point(text: str, given: "Tensor") -> "Tensor":
    import torch

    if text == "origin":
        return torch.zeros_like(given[0])
    try:
        if "," in text:
            return torch.tensor([float(part) for part in text.split(",")], dtype=torch.float64).reshape(given[0].shape)
        return given[range(len(given)).index(int(text))]
    except (ValueError, RuntimeError, IndexError):
        wanted = f"the number of an example (0 to {len(given) - 1}), origin, or {given[0].numel()} coordinates"
        raise InputError(f"{text!r} is no point: give {wanted} with commas.") from None


def prune(
    model: Model,
    sparsity: Annotated[float, Option(help="Fraction of the weights removed: exactly that many.")],
    score: Annotated[str, Option(help="Score: snip, grasp, synflow, force, obd, magnitude or random.")] = "snip",
    scope: Annotated[Literal["global", "layer"], Option(help="One threshold for all layers, or one each.")] = "global",
    layers: Annotated[Literal["uniform", "erk"], Option(help="--scope layer: equal densities, or ERK.")] = "uniform",
    floor: Annotated[int, Option(help="Weights that each layer keeps at least.")] = 0,
    steps: Annotated[int | None, Option(help="Rounds of scoring; default synflow 100, force 60, mostly 1.")] = None,
    rescale: Annotated[
        Literal["layer", "row", "measured"] | None,
        Option(help="Bring what is left to the edge of chaos: measured (right for all masks), by layer, by row."),
    ] = None,
    out: Annotated[Path | None, Option(help="Write the masks to this safetensors file.")] = None,
    out_weights: Annotated[Path | None, Option(help="Write the pruned weights to this safetensors file.")] = None,
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    batch: BatchOrFile = None,
    batch_norm: Norm = "train",
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Prune a model before training: which weights stay, when layers would die, and whether it still trains."""
    from epoch0 import prune as pruning
    from epoch0.initialization import check_path, save
    from epoch0.models import inputs_for, load_model
    from epoch0.prune.effects.rescale import rescaled
    from epoch0.prune.masks.masks import check_sparsity
    from epoch0.prune.scores import TABLE

    files = {kind: path for kind, path in (("masks", out), ("weights", out_weights)) if path is not None}
    if len({os.path.abspath(path) for path in files.values()}) < len(files):
        raise InputError(f"{str(out)!r} cannot hold two things; --out and --out-weights need own files.")
    for kind, path in files.items():
        check_path(path, kind)
    check_sparsity(sparsity)
    if score not in TABLE:
        raise InputError(f"--score {score} is not known; use {', '.join(TABLE)}.{suggest(score, TABLE)}")
    known, network = TABLE[score], load_model(model, weights=weights, seed=seed)
    given = inputs_for(network, data=data_name, input_shape=input_shape, batch=batch, seed=seed, data_dir=data_dir)
    if given.targets is None and "batches" in known.takes:
        others = ", ".join(name for name, other in TABLE.items() if "batches" not in other.takes)
        raise InputError(f"{score} looks at the loss, which needs classes: give --data with labels, or {others}.")
    if steps is not None and steps < 1:
        raise InputError(f"steps={steps} is no number of rounds; use an integer >= 1, such as 100.")
    if "steps" in known.takes and (scope, layers, floor) != ("global", "uniform", 0):
        raise InputError(f"--score {score} has one threshold for all layers; leave --scope, --layers and --floor out.")
    rounds, rescaling = known.rounds if steps is None else steps, None
    stages = 3 if rescale is None else 5
    with FractionProgress("prune") as shown:
        shown(0.0, "assessing the model as it is")
        verdicts = {"before": _verdict(network, given, batch_norm, seed)}
        shown(1 / stages, f"scoring by {score}")
        arguments: dict[str, Any] = {"sparsity": sparsity, "seed": seed, "batch_norm": batch_norm}
        arguments |= {"batches": [(given.x, given.targets)], "x": given.x, "steps": rounds}
        arguments["progress"] = lambda share, what: shown((1 + share) / stages, f"scoring by {score}, {what}")
        one = functools.partial(known.function, **{name: arguments[name] for name in known.takes if name in arguments})
        options = dict[str, Any](scope=scope, layers=layers, floor=floor)
        with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
            scores = one(network)
            if rounds == 1 or "steps" in known.takes:
                masks = pruning.keep(scores, sparsity, **options)
            else:
                masks = pruning.iterate(network, one, sparsity, steps=rounds, progress=arguments["progress"], **options)
        notes = list(dict.fromkeys(str(warning.message) for warning in caught))
        critical = pruning.critical_sparsity(scores)
        try:
            summary = masks.summary(network, given.x)
        except InputError as problem:
            summary, notes = masks.summary(), [*notes, str(problem)]
        pruning.apply(network, masks)
        shown(2 / stages, "assessing the pruned model")
        verdicts["pruned"] = _verdict(network, given, batch_norm, seed)
        if rescale is not None:
            shown(3 / stages, f"rescaling ({rescale})")
            rescaling = rescaled(network, rescale, given.x, seed=seed)
            shown(4 / stages, "assessing the rescaled model")
            verdicts["rescaled"] = _verdict(network, given, batch_norm, seed)
        pruning.bake(network)
    # all or nothing: whatever cannot be done has failed by now
    if out is not None:
        masks.save(out)
    if out_weights is not None:
        save(network, out_weights)
    if as_json:
        head = {"model": model, "inputs": given.description, "method": scores.method, "summary": summary.to_dict()}
        limits = {"critical_sparsity": float(critical), "first_layer_to_vanish": critical.layer, "notes": notes}
        judged = {"verdicts": verdicts, "judged": EXAMINED}
        print_json({**head, **limits, **judged, "rescaling": rescaling and rescaling.to_dict()})
        return
    typer.echo(f"{scores.method}; {given.description}")
    when = "" if rounds == 1 else " if all were removed in one round"
    typer.echo(f"{summary}\ncritical sparsity {critical:.4g}{when}: {critical.layer} is the first layer to vanish")
    for note in notes:
        typer.echo(f"note: {note}")
    if summary.dead or summary.effective == 0:
        less = f"a sparsity below {critical:.4g}" if known.rounds == 1 else "a smaller sparsity"
        again = "" if score == "synflow" else ", --score synflow, which scores again after every round"
        first = "weights at the edge of chaos first (epoch0 init, then --weights)"
        typer.echo(f"what helps: {less}, --floor 1{again}, or {first}")
    if rescaling is not None:
        typer.echo(f"\n{rescaling}")
    typer.echo(f"\nverdicts ({EXAMINED}):")
    for when, verdict in verdicts.items():
        typer.echo(f"{when + ':':<10}{verdict}")
    for kind, path in files.items():
        typer.echo(f"{kind}: {path}")


EXAMINED = "from the first step, without training"


def _verdict(network: "nn.Module", given: "Inputs", batch_norm: str, seed: int) -> str:
    from epoch0.diagnosis.checkup import checkup

    settings = dict[str, Any](batch_norm=batch_norm, seed=seed, directions=2, trial=False, remedies=False)
    try:
        return checkup(network, given.x, given.targets, **settings).verdict
    except InputError as problem:
        return f"cannot be assessed: {problem}"
