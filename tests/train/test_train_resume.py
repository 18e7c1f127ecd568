"""A run that is killed with SIGKILL and started again ends with the bits of one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.train.loop import train
from train_program import forked


def finish(process: Any, out: Path) -> dict:
    process.join(60)
    assert process.exitcode == 0
    return json.loads((out / "said-0.json").read_text())


def killed_at(process: Any, out: Path, step: int, moment: float) -> int:
    """Kill with SIGKILL that many seconds after a step was reported; the step at which it was really hit."""
    until = time.monotonic() + 60
    beat = out / "step"
    while process.is_alive() and time.monotonic() < until:
        if beat.exists() and int(beat.read_text() or 0) >= step:
            time.sleep(moment)
            break
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, "it ended by itself before it could be killed"
    return int(beat.read_text() or 0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_kill_minus_nine_changes_no_bit(tmp_path: Path, precision: str) -> None:
    """Momentum, schedule, clipping, augmentation, dropout, batch norm, autocast; killed thrice at random moments."""
    options = ["--precision", precision, "--dropout", "0.3", "--norm", "--augment", "--slow", "0.01", "--checkpoint"]
    whole = finish(forked(tmp_path / "whole", *options), tmp_path / "whole")
    out, source, hit = tmp_path / "killed", np.random.default_rng(0), []
    for least in (4, 15, 27):
        # another initial network each time: all of it has to come from the checkpoint, which is there by then
        process = forked(out, *options, "--seed", str(len(hit)))
        hit.append(killed_at(process, out, least + int(source.integers(5)), float(source.uniform(0, 0.02))))
    again = finish(forked(out, *options, "--seed", "9"), out)
    assert hit == sorted(hit) and hit[-1] < 40, hit
    assert again["digest"] == whole["digest"]
    assert again["history"] == whole["history"] and [row["step"] for row in again["history"]] == [0, 10, 20, 30, 40]


@pytest.mark.slow
def test_a_new_interpreter_goes_on(tmp_path: Path) -> None:
    """The same with nothing in common but the file: killed and started again from the shell's side."""
    options = ["--dropout", "0.3", "--norm", "--augment", "--slow", "0.01", "--checkpoint"]
    whole = finish(forked(tmp_path / "whole", *options), tmp_path / "whole")
    out = tmp_path / "killed"
    out.mkdir()
    command = [sys.executable, str(Path(__file__).parents[1] / "train_program.py"), str(out), *options]
    process = subprocess.Popen(command)
    while not ((out / "step").exists() and int((out / "step").read_text() or 0) > 17):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    subprocess.run([*command, "--seed", "5"], check=True, timeout=120)
    assert json.loads((out / "said-0.json").read_text()) == whole


@pytest.mark.slow
def test_checkpoints_by_the_clock(tmp_path: Path) -> None:
    """No checkpoint by steps: what a kill leaves was written because time had passed."""
    options = ["--slow", "0.01", "--checkpoint", "--minutes", str(0.05 / 60)]
    whole = finish(forked(tmp_path / "whole", *options), tmp_path / "whole")
    out = tmp_path / "killed"
    killed_at(forked(out, *options), out, 25, 0.0)
    assert (out / "run.safetensors").exists()
    assert finish(forked(out, *options, "--seed", "3"), out)["digest"] == whole["digest"]


def net(width: int = 8) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(0, parameter.dim())) / 2)
    return layers


def steps(optimizer: torch.optim.Optimizer, total: int) -> MultiStepLR:
    return MultiStepLR(optimizer, [total // 2, total * 3 // 4])


MOMENTUM = partial(torch.optim.SGD, momentum=0.9)
X = torch.randn(37, 5, generator=generator(5))
Y = X[:, :3].argmax(1)


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({"schedule": steps}, {"schedule": CosineAnnealingLR}, r"learning rate of the next step 0.001.* \(now 0.0\)"),
        ({"schedule": steps}, {}, r"learning rate of the next step 0.001.* \(now 0.1\)"),
        ({}, {"schedule": steps}, r"learning rate of the next step 0.1 \(now 0.001"),
        ({"schedule": steps}, {"schedule": steps, "steps": 8}, r"learning rate of the next step 0.001.* \(now 0.01"),
        ({"precision": "bfloat16"}, {}, r"precision 'bfloat16' \(now 'float32'\)"),
        ({"clip": 1.0}, {"clip": 2.0}, r"clip 1.0 \(now 2.0\)"),
        ({"optimizer": MOMENTUM}, {"optimizer": "adamw"}, r"optimizer 'SGD' \(now 'AdamW'\)"),
        ({"optimizer": MOMENTUM}, {"optimizer": "sgd"}, r"momentum 0.9 \(now None\)"),
    ],
)
def test_checkpoints_of_another_way_to_train_are_refused(tmp_path: Path, first: dict, then: dict, message: str) -> None:
    path = tmp_path / "run.safetensors"
    train(net(), (X, Y), **{"steps": 4, "batch_size": 10, "checkpoint": path, **first})
    other = net()
    with pytest.raises(InputError, match=rf"run\.safetensors.* was made by a run with .*{message}"):
        train(other, (X, Y), **{"steps": 4, "batch_size": 10, "checkpoint": path, **then})
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), net().parameters(), strict=True))


@pytest.mark.parametrize("schedule", [None, lambda optimizer, steps: MultiStepLR(optimizer, [8], 0.5)])
def test_a_run_that_does_not_depend_on_its_end_can_be_made_longer(tmp_path: Path, schedule: object) -> None:
    options = {"batch_size": 10, "schedule": schedule, "optimizer": MOMENTUM}
    whole = train(net(), (X, Y), steps=14, **options)
    train(net(), (X, Y), steps=6, **options, checkpoint=tmp_path / "c")
    longer = train(net(), (X, Y), steps=14, **options, checkpoint=tmp_path / "c")
    for a, b in zip(whole.model.parameters(), longer.model.parameters(), strict=True):
        assert torch.equal(a, b)
