"""Commands that need no network: bounds, exact laws, mean-field theory."""

from enum import StrEnum
from typing import Annotated

import typer

from epoch0.cli import _mean_field, _norms
from epoch0.cli._shared import Json, command, print_json
from epoch0.errors import InputError


def register(app: typer.Typer) -> None:
    """Put the commands on the app."""
    theory = typer.Typer(no_args_is_help=True, help="Predictions that need no network: bounds and exact laws.")
    command(theory, name="growth")(growth)
    _mean_field.register(theory)
    _norms.register(theory)
    app.add_typer(theory, name="theory")


class Law(StrEnum):
    """Weight laws that the command line can name."""

    gaussian = "gaussian"
    uniform = "uniform"
    discrete = "discrete"


def growth(
    width: Annotated[int, typer.Option(help="Width k of every layer.")] = 784,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 10,
    law: Annotated[Law, typer.Option(help="Law of the weights.")] = Law.gaussian,
    std: Annotated[float, typer.Option(help="Std of a kept weight before the division by sqrt(width).")] = 2.0,
    density: Annotated[float, typer.Option(help="Fraction of the weights kept (alpha), in (0, 1].")] = 1.0,
    largest: Annotated[int, typer.Option(min=1, help="Discrete law: the integers -C..C, scaled to the std.")] = 3,
    activation: Annotated[str, typer.Option(help="relu or leaky_relu.")] = "relu",
    as_json: Json = False,
) -> None:
    """Growth of a trajectory's length a layer and over the depth: bounds and, where known, the exact law."""
    from epoch0 import distributions
    from epoch0.theory import growth as laws

    if width < 1 or depth < 1:
        raise InputError(f"width {width} and depth {depth} must both be at least 1.")
    unit: distributions.Law = {
        Law.gaussian: distributions.Gaussian(std),
        Law.uniform: distributions.Uniform(std * 3**0.5),
        Law.discrete: distributions.integers(largest, scale=std / (largest * (largest + 1) / 3) ** 0.5),
    }[law]
    entry = distributions.Sparse(unit, density).scaled(width**-0.5)
    bounds = laws.bounds(entry, [width] * depth, activation=activation)
    if as_json:
        print_json(bounds.to_dict())
    else:
        typer.echo(str(bounds))
