"""Commands on a model of the user's: what it is before training."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from epoch0.cli._shared import DataDir, Json, command, print_json


def register(app: typer.Typer) -> None:
    """Put the commands on the app."""
    command(app, name="checkup")(checkup)


class BatchNorm(StrEnum):
    """Which statistics a batch norm uses while it is measured."""

    train = "train"
    eval = "eval"


def checkup(
    model: Annotated[
        str,
        typer.Argument(
            help="package.module:callable or path.py:callable that gives a torch module. It is your code; it is run."
        ),
    ],
    data_name: Annotated[
        str | None,
        typer.Option("--data", help="Inputs: digits, mnist, fashion-mnist, cifar10 or a path.npz with x and y."),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(help="Gaussian inputs of this shape instead of data, such as 784 or 3,32,32.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="A safetensors file with the weights; never a pickle.")] = None,
    batch: Annotated[int, typer.Option(help="Number of inputs.")] = 64,
    batch_norm: Annotated[
        BatchNorm, typer.Option(help="Batch norm as training sees it, or with its running statistics.")
    ] = BatchNorm.train,
    directions: Annotated[int, typer.Option(help="Random directions a layer; more make the errors smaller.")] = 8,
    seed: Annotated[int, typer.Option(help="Names the random directions and inputs.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write one self-contained page with pictures.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell what a model is before training: phase, verdict, and what to change."""
    from epoch0 import models
    from epoch0.diagnosis import checkup as examine

    network = models.load_model(model, weights=weights, seed=seed)
    given = models.inputs_for(
        network, data=data_name, input_shape=input_shape, batch=batch, seed=seed, data_dir=data_dir
    )
    result = examine(
        network, given.x, given.targets, batch_norm=batch_norm.value, directions=directions, seed=seed, name=model,
        inputs=given.description,
    )  # fmt: skip
    if html is not None:
        result.to_html(html)
    if as_json:
        print_json(result.to_dict())
    else:
        result.print()
        if html is not None:
            typer.echo(f"page: {html}")
