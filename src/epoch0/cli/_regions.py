"""The command on linear regions: count and draw them on a line or a plane of input space (Hanin & Rolnick)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from epoch0.cli._models import Data, InputShape, Model, Seed, Weights
from epoch0.cli._shared import DataDir, Json, check_picture, command, print_json, save_picture
from epoch0.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from epoch0.regions import PlanePartition

Points = "Each is the number of an example of the data, origin, or coordinates with commas."


def register(app: typer.Typer) -> None:
    """Put the command on the app."""
    command(app, name="regions")(regions)


def regions(
    model: Model,
    line: Annotated[
        tuple[str, str] | None, typer.Option(help=f"Two points, the line between them. {Points}", metavar="A B")
    ] = None,
    plane: Annotated[
        tuple[str, str, str] | None,
        typer.Option(help="Three points, the square around the circle through them.", metavar="A B C"),
    ] = None,
    kind: Annotated[
        Literal["segment", "ray", "line"],
        typer.Option(help="With --line: from A to B, from A on through B, or both ways."),
    ] = "segment",
    margin: Annotated[float, typer.Option(help="With --plane: half the side, in radii of the circle.")] = 1.0,
    count_only: Annotated[
        bool, typer.Option("--count-only", help="The number alone, without geometry: faster.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="With --plane: draw the regions into this PNG, SVG or PDF file.")
    ] = None,
    memory: Annotated[float, typer.Option(help="Bytes to use, about; larger work is split.")] = 2e9,
    workers: Annotated[int, typer.Option(help="Threads that share the work; the result is the same.")] = 1,
    data_name: Data = None,
    input_shape: InputShape = None,
    weights: Weights = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Exact linear regions of a piecewise linear network on a line or a plane, with the certificate of the count."""
    from epoch0 import models
    from epoch0 import regions as exact
    from epoch0.regions.workers import Shown

    if (line is None) == (plane is None):
        raise InputError("say where: --line A B or --plane A B C, one of them.")
    if plot is not None and (plane is None or count_only):
        raise InputError("--plot draws a plane with its geometry; give --plane A B C, without --count-only.")
    if plot is not None:
        check_picture(plot)
    network = models.load_model(model, weights=weights, seed=seed).eval()
    given = models.inputs_for(
        network, data=data_name, input_shape=input_shape, batch=10_000, seed=seed, data_dir=data_dir
    ).x.double()
    where = [_point(text, given) for text in line or plane or ()]
    if plane is not None:
        window = exact.through(*where, margin=margin)
        if count_only:
            with Shown("regions") as shown:
                number = exact.count(network, window, memory=memory, workers=workers, progress=shown)
            _say({"regions": number}, as_json)
            return
        with Shown("regions") as shown:
            found = exact.on_plane(network, window, memory=memory, workers=workers, progress=shown)
        if plot is not None:
            save_picture(found.plot(), plot)
        _say_plane(found, plot, as_json)
        return
    with Shown("regions") as shown:
        cut = exact.on_line(network, *where, kind=kind, memory=memory, workers=workers, progress=shown)
    assert isinstance(cut, exact.LinePartition)  # two single points give one line
    if count_only:
        _say({"regions": cut.count}, as_json)
    elif as_json:
        owners = zip(cut.breakpoints.tolist(), cut.owner, strict=True)
        names = ("t", "layer", "neuron", "face")
        breaks = [dict(zip(names, (t, *owner), strict=True)) for t, owner in owners]
        print_json({**_counts(cut), "breakpoints": breaks, **_told(cut, cut.certificate)})
    else:
        typer.echo(f"{cut}\n  linear regions: {cut.linear_count}")


def _say_plane(found: "PlanePartition", plot: Path | None, as_json: bool) -> None:
    certificate = found.verify()
    if as_json:
        sizes = {"vertices": len(found.vertices), "edges": len(found.edges), "area": found.window.area}
        print_json({**_counts(found), **sizes, **_told(found, certificate)})
    else:
        distinct = "all patterns differ" if certificate.distinct else "patterns REPEAT"
        typer.echo(f"{found}\n  linear regions: {found.linear_count}; {distinct}")
        if plot is not None:
            typer.echo(f"picture: {plot}")


def _counts(found: Any) -> dict[str, Any]:
    layers = dict(zip(found.layers, found.per_layer, strict=True))
    numbers = {"regions": found.count, "linear_regions": found.linear_count, "neurons": found.neurons}
    return {**numbers, "per_layer": layers}


def _told(found: Any, certificate: Any) -> dict[str, Any]:
    return {"certificate": certificate.to_dict(), "notes": list(found.notes)}


def _say(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(f"{value} {name}" for name, value in found.items()))


def _point(text: str, given: "Tensor") -> "Tensor":
    """A point of input space, shape of one example."""
    import torch

    if text == "origin":
        return torch.zeros_like(given[0])
    try:
        if "," in text:
            numbers = torch.tensor([float(part) for part in text.split(",")], dtype=torch.float64)
            return numbers.reshape(given[0].shape)
        return given[int(text)]
    except (ValueError, RuntimeError, IndexError):
        raise InputError(
            f"{text!r} is no point: give the number of an example (0 to {len(given) - 1}), origin, or "
            f"{given[0].numel()} coordinates with commas."
        ) from None
