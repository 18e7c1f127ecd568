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
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from epoch0.files import write_atomic
from epoch0.seeds import generator
from epoch0.train.data import Images, PadCropFlip
from epoch0.train.device import joined
from epoch0.train.evaluation import Every
from epoch0.train.loop import train


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
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with joined() as group:
        run(given, group)


def warmed_up(optimizer: torch.optim.Optimizer, steps: int) -> lr_scheduler.LRScheduler:
    """A linear rise over a quarter of the run, then half a cosine."""
    rise = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=steps // 4)
    return lr_scheduler.SequentialLR(optimizer, [rise, lr_scheduler.CosineAnnealingLR(optimizer, steps)], [steps // 4])


def run(given: argparse.Namespace, group) -> None:
    pixels = torch.randint(256, (given.examples, 3, 6, 6), dtype=torch.uint8, generator=generator(1))
    scaling = torch.tensor([[127.5], [74.0]]).expand(2, 3)
    plain = Images(pixels, torch.arange(given.examples) % 4, scaling)
    x, _ = plain.batch(torch.arange(given.examples))
    source = plain.augmented(PadCropFlip(1)) if given.augment else plain
    net = network(given.seed if group.first else 77, given.dropout, given.norm)
    calls = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        time.sleep(given.slow)
        if calls == 5 and group.rank == given.die:
            os.kill(os.getpid(), signal.SIGKILL)
        wild = given.wild and calls == 5 and group.rank == group.size - 1
        return F.cross_entropy(outputs, targets) * (float("inf") if wild else 1.0)

    def evaluate(model: nn.Module) -> dict[str, float]:
        with torch.no_grad():
            return {"accuracy": float((model(x).argmax(1) == torch.arange(given.examples) % 4).double().mean())}

    def beat(step: int, model: nn.Module, row: object) -> None:
        write_atomic(given.out / "step", str(step).encode())  # a kill must not find it empty

    said: dict[str, object] = {"rank": group.rank}
    try:
        done = train(
            net, source, steps=given.steps, batch_size=given.batch,
            optimizer=partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-3, nesterov=True), learning_rate=0.05,
            schedule=warmed_up, clip=2.0, loss=loss, seed=4, precision=given.precision,
            evaluate=evaluate, evaluate_every=10, callbacks=[Every(1, beat)] if given.slow else [],
            checkpoint=given.out / "run.safetensors" if given.checkpoint else None,
            checkpoint_every=given.every if given.minutes is None else None, checkpoint_minutes=given.minutes,
        )  # fmt: skip
        # with a row for every step the mean losses of the rows are another thing than without
        rows = [{**row, "loss": None} for row in done.history if row["step"] % 10 == 0] if given.slow else done.history
        said |= {"history": list(rows)}
        said |= {"steps": done.steps, "stopped": done.stopped_because}
    except (RuntimeError, ValueError) as problem:
        said |= {"problem": type(problem).__name__, "text": str(problem), "calls": calls}
    state = {name: value.detach() for name, value in net.state_dict().items()}
    told = b"".join(name.encode() + value.numpy().tobytes() for name, value in sorted(state.items()))
    said["digest"] = hashlib.sha256(told).hexdigest()
    said["state"] = {name: value.tolist() for name, value in state.items()}
    (given.out / f"said-{group.rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
