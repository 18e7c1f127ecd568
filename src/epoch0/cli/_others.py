"""Commands that need no model: laws; the papers' figures, results of several places; data sets; demo and doctor."""

import dataclasses
import math
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from epoch0 import __version__
from epoch0.cli._shared import DataDir, Json, check_picture, print_json, print_result, print_rows, save_picture
from epoch0.errors import InputError, reworded
from epoch0.files import to_write, write_atomic

Activation = Annotated[str, Argument(help="A name such as tanh, or path.py:function: your code, it is run.")]
Density = Annotated[float, Option(help="Fraction of the weights kept (alpha), in (0, 1].")]

BIAS_STD = 0.2  # sigma_b of activations with a scale, unless another is asked for; those without (ReLU) need none


def reproduce(
    ids: Annotated[list[str] | None, Argument(help="Artifacts such as price-tanner/fig3b, papers, or all.")] = None,
    preset: Annotated[Literal["quick", "paper"], Option(help="quick: a minute; paper: the paper's setting.")] = "quick",
    out: Annotated[Path, Option(help="Folder for tables, pictures and results.")] = Path("results"),
    workers: Annotated[int | None, Option(help="Worker processes; default one a core.")] = None,
    scheduler: Annotated[str | None, Option(help="Address of a dask scheduler, such as tcp://head:8786.")] = None,
    shard: Annotated[str | None, Option(help="Run part i of n, as i/n, into its own file; join: sweep merge.")] = None,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print runs, weights, images and hours here.")] = False,
    seconds: Annotated[float, Option(help="Of measurement for a dry run.")] = 20.0,
    list_all: Annotated[bool, Option("--list", help="List the artifacts and leave.")] = False,
    statements: Annotated[bool, Option("--statements", help="List all statements and their verdicts.")] = False,
    as_json: Json = False,
) -> None:
    """Regenerate figures and tables of the papers, with their claims decided."""
    from epoch0.papers import catalogue

    if list_all:
        known = catalogue.catalogue().values()
        print_rows([{"id": item.id, "what": item.titled(item.presets["paper"])} for item in known], as_json)
        return
    if statements:
        print_rows([{"paper": statement.paper, **statement.row()} for statement in catalogue.statements()], as_json)
        return
    if not ids:
        raise InputError("no artifact was named; give ids, a paper, or all (epoch0 reproduce --list shows them).")
    names = list(dict.fromkeys(name for given in ids for name in catalogue.expand(given)))
    if dry_run:
        from epoch0.papers.estimate import estimate

        # what the results file of the folder has is done
        print_result(estimate(names, preset, seconds, out / "results.sqlite", workers=workers), as_json)
        return
    from epoch0.experiments.run import Progress
    from epoch0.papers.reproduce import reproduce_all

    where = dict[str, Any](out=out, workers=workers, scheduler=scheduler, shard=shard, data_dir=data_dir)
    results = []
    for done in reproduce_all(names, preset=preset, progress=Progress("trials"), **where):
        results.append(done.to_dict())
        if not as_json:
            typer.echo(str(done))
    if as_json:
        print_json(results)
    elif shard is None:
        typer.echo(f"tables, pictures and claims: {out}")


def sweep_merge(
    sources: Annotated[list[Path], Argument(help="Results files to join.")],
    into: Annotated[Path, Option(help="Results file that takes all of them; made if it is not there.")],
    as_json: Json = False,
) -> None:
    """Join the results files of a job array into one."""
    from epoch0.experiments.store import merge

    added = merge(sources, into)
    print_json({"into": str(into), "added": added}) if as_json else typer.echo(f"{added} trials added to {into}")


def demo(
    out: Annotated[Path, Option(help="Folder for the report.")] = Path("demo-out"),
    workers: Annotated[int | None, Option(help="Worker processes; default one a core.")] = None,
    as_json: Json = False,
) -> None:
    """Check three networks on real digits, train them to see who was right, and regenerate one figure: a minute."""
    from epoch0.demo import run

    summary = run(out, workers=workers, echo=None if as_json else typer.echo)
    if as_json:
        print_json(summary)


def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """What there is, and where it was found."""
    from epoch0.data import available

    rows = [dataclasses.asdict(row) for row in available(data_dir)]
    print_rows([{**row, "found": row["found"] and str(row["found"])} for row in rows], as_json)


def data_fetch(
    name: Annotated[str, Argument(help="mnist, fashion-mnist, cifar10 or cifar100.")],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Download a data set and check it, content against checksum. Tiny ImageNet and ImageNet are not downloaded; epoch0
    data list says where to put them.
    """
    from epoch0.data import fetch

    where = fetch(name, data_dir, progress=lambda line: typer.echo(line, err=True))
    print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))


def data_path(
    name: Annotated[str, Argument(help="Name of a data set.")], data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Where a data set lies."""
    from epoch0.data import path

    where = path(name, data_dir)
    print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))


def doctor(data_dir: DataDir = None, as_json: Json = False) -> None:
    """What this installation has: versions, devices, data sets, and the command that brings what is missing. Leaves
    with exit code 1 if something is missing that is not optional.
    """
    rows = [*_packages(), *_devices_and_data(data_dir)]
    print_rows(rows, as_json)
    if any(row["status"] == "missing" for row in rows):
        raise typer.Exit(1)


def _packages() -> Iterator[dict[str, Any]]:
    """Python, this package, and what it asks for; what the extra ``all`` asks for is optional."""
    from packaging.requirements import Requirement

    yield _row("python", platform.python_version(), "ok")
    yield _row("epoch0", __version__, "ok")
    for line in metadata.requires("epoch0") or []:
        wanted = Requirement(line)
        optional = wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})
        if optional and wanted.marker is not None and not wanted.marker.evaluate({"extra": "all"}):
            continue
        found = next((distribution.version for distribution in metadata.distributions(name=wanted.name)), None)
        word = "optional" if optional else "missing"
        fits = found is not None and wanted.specifier.contains(found, prereleases=True)
        yield _row(wanted.name, found, "ok" if fits else word, f"pip install '{wanted.name}{wanted.specifier}'")


def _devices_and_data(data_dir: Path | None) -> Iterator[dict[str, Any]]:
    import torch

    from epoch0.data import available
    from epoch0.data.catalogue import SETS

    yield _row("cpu", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads", "ok")
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield _row(f"cuda:{number}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB", "ok")
    if torch.backends.mps.is_available():
        yield _row("mps", "Apple's GPU", "ok")
    for item in available(data_dir):
        mend = "epoch0 data list says where to put it" if SETS[item.name].tree else f"epoch0 data fetch {item.name}"
        yield _row(item.name, None if item.found is None else str(item.found), "ok" if item.found else "optional", mend)


def _row(what: str, found: str | None, status: str, mend: str | None = None) -> dict[str, Any]:
    return {"what": what, "found": found, "status": status, "mend": None if status == "ok" else mend}


def growth(
    width: Annotated[int, Option(help="Width k of every layer.")] = 784,
    depth: Annotated[int, Option(help="Number of layers.")] = 10,
    law: Annotated[Literal["gaussian", "uniform", "discrete"], Option(help="Law of the weights.")] = "gaussian",
    std: Annotated[float, Option(help="Std of a kept weight before the division by sqrt(width).")] = 2.0,
    density: Density = 1.0,
    largest: Annotated[int, Option(min=1, help="Discrete law: the integers -C..C, scaled to the std.")] = 3,
    activation: Annotated[str, Option(help="relu or leaky_relu.")] = "relu",
    as_json: Json = False,
) -> None:
    """Growth of a trajectory's length a layer and over the depth: bounds and, where known, the exact law."""
    from epoch0 import distributions
    from epoch0.theory import growth as laws

    if width < 1 or depth < 1:
        raise InputError(f"width {width} and depth {depth} must both be at least 1.")
    unit: distributions.Law = {
        "gaussian": distributions.Gaussian(std),
        "uniform": distributions.Uniform(std * 3**0.5),
        "discrete": distributions.integers(largest, scale=std / (largest * (largest + 1) / 3) ** 0.5),
    }[law]
    entry = distributions.Sparse(unit, density).scaled(width**-0.5)
    print_result(laws.bounds(entry, [width] * depth, activation=activation), as_json)


def eoc(
    names: Annotated[list[str] | None, Argument(help="Names, or path.py:function; default all with a name.")] = None,
    bias_std: Annotated[float | None, Option(help="sigma_b, by default 0 for ReLU's like, else 0.2.")] = None,
    weight_std: Annotated[float | None, Option(help="sigma_w; the biases that go with it are looked for.")] = None,
    density: Density = 1.0,
    as_json: Json = False,
) -> None:
    """Edge of chaos: the standard deviations of weights and biases at which signals and gradients keep their size."""
    from epoch0.activations import KNOWN
    from epoch0.models import load_activation
    from epoch0.theory import mean_field

    rows: list[dict[str, Any]] = []
    for name in names or list(KNOWN):
        rule, given = load_activation(name), {"weight_std": weight_std, "bias_std": bias_std}
        if weight_std is None and bias_std is None:
            given["bias_std"] = 0.0 if rule.homogeneous else BIAS_STD
        try:
            rows.append(mean_field.edge_of_chaos(rule, **given, density=density).to_dict())
        except InputError as problem:
            # in a list, an activation without an edge is a row like any other; asked for alone, it is an error
            if names and len(names) == 1:
                raise
            rows.append({"activation": rule.name, **given, "q": None, "density": density, "note": str(problem)})
    print_json(rows) if as_json else print_rows([_cells(row) for row in rows], False)
    for row in () if as_json else rows:
        if row["note"]:
            typer.echo(f"{row['activation']}: {row['note'].removeprefix(row['activation'] + ' ')}")


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    std, found = row["weight_std"], "chi" in row
    return {
        "activation": row["activation"],
        "weight std": f"{std:.6f}" if found else None,
        "weight variance": f"{std**2:.6f}" if found else None,
        "bias std": f"{row['bias_std']:.6g}" if row["bias_std"] is not None else None,
        "q": (f"{row['q']:.6f}" if row["q"] is not None else "any") if found else "no edge",
    }


def phase_diagram(
    activation: Activation,
    weight_std: Annotated[str, Option(help="Range of sigma_w, as from:to.")] = "0.1:3",
    bias_std: Annotated[str, Option(help="Range of sigma_b, as from:to.")] = "0:1",
    points: Annotated[int, Option(min=2, help="Points along each axis.")] = 200,
    density: Density = 1.0,
    out: Annotated[Path, Option(help="The picture, a PNG or SVG file.")] = Path("phase-diagram.png"),
    as_json: Json = False,
) -> None:
    """Phase diagram: where a network of this activation is ordered, where chaotic, and where its signals diverge."""
    import numpy as np

    from epoch0.models import load_activation
    from epoch0.theory import mean_field

    check_picture(out)
    weights = np.linspace(*_range("--weight-std", weight_std), points)
    biases = np.linspace(*_range("--bias-std", bias_std), points)
    diagram = mean_field.phase_diagram(load_activation(activation), weights, biases, density=density)
    save_picture(diagram.plot(), out)
    print_result(diagram, as_json, f"picture: {out}")


def kernel(
    activation: Activation,
    depth: Annotated[int, Option(min=1, help="Hidden layers.")] = 10,
    weight_std: Annotated[float | None, Option(help="sigma_w, std times sqrt(fan_in); default edge of chaos.")] = None,
    bias_std: Annotated[float, Option(help="sigma_b, the standard deviation of a bias.")] = 0.0,
    density: Density = 1.0,
    architecture: Annotated[
        Literal["dense", "residual", "stable"], Option(help="stable: residual branches times 1/sqrt(depth).")
    ] = "dense",
    data_name: Annotated[str, Option("--data", help="Inputs: digits, mnist, cifar10, ...")] = "digits",
    examples: Annotated[int, Option(min=1, help="How many inputs.")] = 100,
    out: Annotated[Path | None, Option(help="Write both kernels to this safetensors file.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Kernels of infinitely wide networks on a data set: NNGP and NTK, and how far their values spread."""
    from epoch0 import data
    from epoch0.models import load_activation
    from epoch0.theory import mean_field

    if out is not None:
        to_write(out, "kernels", [".safetensors"])
    rule = load_activation(activation)
    if weight_std is None:
        weight_std = mean_field.edge_of_chaos(rule, bias_std=bias_std, density=density).weight_std
    inputs = data.load(data_name, data_dir=data_dir).inputs("standard")[:examples]
    law = dict[str, Any](activation=rule, weight_std=weight_std, bias_std=bias_std, density=density)
    found = mean_field.kernel(inputs.reshape(len(inputs), -1), depth=depth, architecture=architecture, **law)
    if out is not None:
        from safetensors.numpy import save

        write_atomic(out, save({"nngp": found.nngp, "ntk": found.ntk}), "kernels")
    print_result(found, as_json, *([f"kernels: {out}"] if out else []))


def _range(name: str, text: str) -> tuple[float, float]:
    with reworded(lambda _: InputError(f"{name} {text!r} is no range; write it as from:to, such as 0.1:3.")):
        low, high = (float(part) for part in text.split(":"))
    if not 0 <= low < high < math.inf:
        raise InputError(f"{name} {text!r} is no range of standard deviations; it must have 0 <= from < to.")
    return low, high


def width(
    eps: Annotated[float, Option(help="Tolerance: squared norms within 1 ± eps in every layer, in (0, 1).")] = 0.1,
    delta: Annotated[float, Option(help="Probability of failure that is accepted, in (0, 1).")] = 0.05,
    samples: Annotated[int, Option(help="Inputs for which it must hold at once.")] = 1,
    layers: Annotated[int, Option(help="Layers.")] = 1,
    direction: Literal["forward", "gradient"] = "forward",
    as_json: Json = False,
) -> None:
    """Width that keeps the norms of a ReLU network: by the paper's bound, by the best Chernoff bound, exactly."""
    from epoch0.theory.norms import summary

    print_result(summary(eps, delta, samples, layers, direction), as_json)
