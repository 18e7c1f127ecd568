"""A program that trains one network and says what came out; tests start it, kill it, and start it again.

    python train_program.py OUT [--steps N] [--slow SECONDS] [--norm] [...]

Most tests fork it, which saves loading torch; those marked slow start a new interpreter, or torchrun.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from epoch0.seeds import generator
from epoch0.train.augmentation import PadCropFlip
from epoch0.train.distributed import ProcessLost, joined
from epoch0.train.loop import SGD, train
from epoch0.train.record import Every
from epoch0.train.schedules import Cosine, WarmUp
from epoch0.train.sources import Tensors


def network(seed: int, dropout: float, norm: bool) -> nn.Sequential:
    """Images (3, 6, 6) to 4 classes."""
    between: list[nn.Module] = [nn.BatchNorm2d(5)] if norm else []
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), *between, nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(180, 4)
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed, parameter.dim())) / 5)
    return net


def forked(out: Path, *options: str, **environment: str) -> multiprocessing.Process:
    """The program in a process of its own, which begins where this one is."""

    def begin() -> None:
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main([str(out), *options])

    out.mkdir(exist_ok=True)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)  # loads seconds' worth of torch here, once
    process = multiprocessing.get_context("fork").Process(target=begin, daemon=True)
    process.start()
    return process


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--examples", type=int, default=23)
    parser.add_argument("--batch", type=int, default=7)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--norm", action="store_true")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--wild", action="store_true", help="one rank's loss is infinite in step 5")
    parser.add_argument("--die", type=int, default=-1, help="this rank kills itself in step 5")
    parser.add_argument("--press", type=int, default=-1, help="this rank gets Ctrl-C in step 5")
    parser.add_argument("--differ", action="store_true", help="each rank has arguments of its own")
    parser.add_argument("--fail", action="store_true", help="evaluation fails on rank 0")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with joined(timeout_minutes=1.0) as group:
        run(given, group)


def run(given: argparse.Namespace, group) -> None:
    x = torch.randn(given.examples, 3, 6, 6, generator=generator(1))
    source = Tensors(x, torch.arange(given.examples) % 4, PadCropFlip(1) if given.augment else None)
    net = network(given.seed if group.first else 77, given.dropout, given.norm)
    calls = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        time.sleep(given.slow)
        if calls == 5 and group.rank == given.die:
            os.kill(os.getpid(), signal.SIGKILL)
        if calls == 5 and group.rank == given.press:
            os.kill(os.getpid(), signal.SIGINT)
        wild = given.wild and calls == 5 and group.rank == group.size - 1
        return F.cross_entropy(outputs, targets) * (float("inf") if wild else 1.0)

    def evaluate(model: nn.Module) -> dict[str, float]:
        if given.fail:
            raise ZeroDivisionError("no such number")
        with torch.no_grad():
            return {"accuracy": float((model(x).argmax(1) == torch.arange(given.examples) % 4).double().mean())}

    def beat(step: int, model: nn.Module, row: object) -> None:
        (given.out / "step").write_text(str(step))

    said: dict[str, object] = {"rank": group.rank}
    try:
        done = train(
            net, source, steps=given.steps, batch_size=given.batch,
            optimizer=SGD(0.9, 1e-3, nesterov=True), learning_rate=0.05 + given.differ * group.rank,
            schedule=WarmUp(0.25, 0.1, Cosine()), clip=2.0, loss=loss, seed=4, precision=given.precision,
            evaluate=evaluate, evaluate_every=10, callbacks=[Every(1, beat)] if given.slow else [],
            checkpoint=given.out / "run.safetensors" if given.checkpoint else None,
            checkpoint_every=given.every if given.minutes is None else None, checkpoint_minutes=given.minutes,
        )  # fmt: skip
        # with a row for every step the mean losses of the rows are another thing than without
        rows = [{**row, "loss": None} for row in done.history if row["step"] % 10 == 0] if given.slow else done.history
        said |= {"history": list(rows)}
        said |= {"steps": done.steps, "stopped": done.stopped_because}
    except (KeyboardInterrupt, ProcessLost, ValueError, ZeroDivisionError) as problem:
        said |= {"problem": type(problem).__name__, "text": str(problem), "calls": calls}
    state = {name: value.detach() for name, value in net.state_dict().items()}
    told = b"".join(name.encode() + value.numpy().tobytes() for name, value in sorted(state.items()))
    said["digest"] = hashlib.sha256(told).hexdigest()
    said["state"] = {name: value.tolist() for name, value in state.items()}
    (given.out / f"said-{group.rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
