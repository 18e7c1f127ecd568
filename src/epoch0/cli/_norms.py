"""Commands of the norm laws: how wide a layer must be, how norms spread (Arpit & Bengio)."""

from enum import StrEnum
from typing import Annotated

import typer

from epoch0.cli._shared import Json, command, print_json

Eps = Annotated[float, typer.Option(help="Tolerance: squared norms within 1 ± eps in every layer, in (0, 1).")]
Delta = Annotated[float, typer.Option(help="Probability of failure that is accepted, in (0, 1).")]
Samples = Annotated[int, typer.Option(help="Inputs for which it must hold at once.")]
Layers = Annotated[int, typer.Option(help="Layers.")]


class Direction(StrEnum):
    """Which norms."""

    forward = "forward"
    gradient = "gradient"


def register(theory: typer.Typer) -> None:
    """Put the commands on the group."""
    command(theory, name="width")(width)
    command(theory, name="norms")(norms)


def width(
    eps: Eps = 0.1, delta: Delta = 0.05, samples: Samples = 1, layers: Layers = 1,
    direction: Direction = Direction.forward, as_json: Json = False,
) -> None:  # fmt: skip
    """Width that keeps the norms of a ReLU network: by the paper's bound, by the best Chernoff bound, exactly."""
    from epoch0.theory.norms import summary

    found = summary(eps, delta, samples=samples, layers=layers, direction=direction.value)
    print_json(found.to_dict()) if as_json else typer.echo(str(found))


def norms(
    width: Annotated[int, typer.Option(help="Width of every layer.")] = 500,
    layers: Layers = 10, eps: Eps = 0.1, delta: Delta = 0.05, samples: Samples = 1,
    direction: Direction = Direction.forward, as_json: Json = False,
) -> None:  # fmt: skip
    """Law of the norms in a ReLU network of He's weights: mean, spread, quantiles, chance that a layer fails."""
    from epoch0.theory.norms import at_width

    found = at_width(width, layers=layers, eps=eps, delta=delta, samples=samples, direction=direction.value)
    print_json(found.to_dict()) if as_json else typer.echo(str(found))
