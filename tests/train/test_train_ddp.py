"""Two processes that train together (gloo, on this machine) against one, and what ends one of them ends both."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn
from torch.func import functional_call

import train_program
from epoch0.errors import InputError
from epoch0.train.device import Group, joined
from train_program import forked

SIZE = 2


def port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def together(out: Path, *options: str) -> tuple[list[dict[str, Any]], list[int], float]:
    """What each rank said (nothing if it was killed), their exit codes, and how many seconds it took."""
    names = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}
    begun = time.monotonic()
    processes = [forked(out, *options, RANK=str(rank), LOCAL_RANK=str(rank), **names) for rank in range(SIZE)]
    for process in processes:
        process.join(90)
        assert process.exitcode is not None, "a rank hangs"
    said = []
    for rank in range(SIZE):
        file = out / f"said-{rank}.json"
        said.append(json.loads(file.read_text()) if file.exists() else {})
        file.unlink(missing_ok=True)
    return said, [process.exitcode or 0 for process in processes], time.monotonic() - begun


def alone(out: Path, *options: str) -> dict[str, Any]:
    process = forked(out, *options)
    process.join(90)
    assert process.exitcode == 0
    return json.loads((out / "said-0.json").read_text())


def close(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The same parameters and rows up to the rounding of sums taken in another order."""
    for name, value in one["state"].items():
        torch.testing.assert_close(torch.tensor(value), torch.tensor(other["state"][name]), rtol=2e-5, atol=2e-6)
    assert [row["step"] for row in one["history"]] == [row["step"] for row in other["history"]]
    for a, b in zip(one["history"], other["history"], strict=True):
        assert a["accuracy"] == pytest.approx(b["accuracy"], abs=0.05)
        assert a["loss"] == (None if b["loss"] is None else pytest.approx(b["loss"], rel=1e-5))


# batches of 7: 23 examples leave one of 2 (one a rank), 22 one of 1 (nothing for rank 1), 26 one of 5 (3 and 2)
@pytest.mark.sample(1)
@pytest.mark.parametrize("examples", [22, 23, 26])
def test_two_processes_are_one_with_the_joint_batch(tmp_path: Path, examples: int) -> None:
    options = ["--examples", str(examples), "--augment", "--steps", "20"]
    said, codes, _ = together(tmp_path / "two", *options)
    assert codes == [0, 0]
    one = alone(tmp_path / "one", *options)
    close(said[0], one)
    # rank 1 began with another network: rank 0's counts; all ranks end with the same bits and the same history
    assert said[1]["digest"] == said[0]["digest"] and said[1]["history"] == said[0]["history"]


class InParts(nn.Module):
    """What batch norm sees in two processes, in one: each part by itself, the running statistics of the first."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return self.net(inputs)
        first, second = inputs[: -(-len(inputs) // 2)], inputs[-(-len(inputs) // 2) :]
        outputs = [self.net(first)]
        if len(second):  # with statistics of its own, which nobody looks at
            apart = {name: buffer.clone() for name, buffer in self.net.named_buffers()}
            outputs.append(functional_call(self.net, apart, (second,)))
        return torch.cat(outputs)


@pytest.mark.sample(1)
@pytest.mark.parametrize("examples", [22, 23])
def test_batch_norm_normalizes_the_part_that_its_process_has(
    tmp_path: Path, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--norm", "--examples", str(examples), "--steps", "20"]
    said, codes, _ = together(tmp_path / "two", *options)
    assert codes == [0, 0]
    joint = alone(tmp_path / "joint", *options)
    network = train_program.network
    monkeypatch.setattr(train_program, "network", lambda *given: InParts(network(*given)))
    parts = alone(tmp_path / "parts", *options)
    close(said[0], parts | {"state": {name.removeprefix("net."): value for name, value in parts["state"].items()}})
    assert said[1]["digest"] == said[0]["digest"], "rank 1 has the running statistics of rank 0"
    for name in ("0.weight", "1.running_var", "5.weight"):
        one, two = (torch.tensor(run["state"][name]) for run in (joint, said[0]))
        assert float((one - two).abs().max()) > 1e-3, "by the joint batch it would have been another network"


@pytest.mark.slow
def test_their_checkpoint_has_the_names_of_a_plain_one_and_resumes_to_the_bit(tmp_path: Path) -> None:
    options = ["--norm", "--augment", "--dropout", "0.3"]
    whole, _, _ = together(tmp_path / "whole", *options, "--steps", "24")
    options += ["--checkpoint", "--steps", "24"]
    _, codes, _ = together(tmp_path / "parts", *options, "--die", "1")
    assert codes[1] == -signal.SIGKILL
    with safe_open(tmp_path / "parts" / "run.safetensors", "pt") as file:
        names = {name for name in file.keys() if name.startswith("model.")}  # noqa: SIM118 - not a mapping
    assert names == {f"model.{name}" for name in whole[0]["state"]}
    again, codes, _ = together(tmp_path / "parts", *options)
    assert codes == [0, 0]
    assert again[0]["digest"] == again[1]["digest"] == whole[0]["digest"]
    assert again[0]["history"] == whole[0]["history"]


def test_a_rank_that_is_killed_ends_the_other_soon(tmp_path: Path) -> None:
    for victim in (0, 1):
        said, codes, seconds = together(tmp_path / str(victim), "--die", str(victim))
        assert codes[victim] == -signal.SIGKILL and said[victim] == {}
        assert "onnection" in said[1 - victim]["text"], "torch says that it is closed, or reset"
        assert seconds < 60  # the time limit of the group; a closed connection is noticed at once


def test_an_infinite_loss_of_one_rank_stops_all_at_the_same_step(tmp_path: Path) -> None:
    said, codes, _ = together(tmp_path, "--wild")
    assert codes == [0, 0]
    assert [(one["steps"], one["stopped"]) for one in said] == [(4, "diverged")] * 2
    assert said[0]["digest"] == said[1]["digest"]


@pytest.mark.slow
def test_under_torchrun(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "train_program.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    subprocess.run([*command, str(tmp_path), "--steps", "20"], check=True, timeout=300, env={**os.environ})
    said = [json.loads((tmp_path / f"said-{rank}.json").read_text()) for rank in range(2)]
    assert said[0]["digest"] == said[1]["digest"]
    close(said[0], alone(tmp_path / "one", "--steps", "20"))


@given(count=st.integers(1, 40), size=st.integers(1, 9))
def test_parts_make_up_the_batch(count: int, size: int) -> None:
    joint = torch.arange(count)
    parts = [Group(rank, size).part(joint) for rank in range(size)]
    assert torch.equal(torch.cat(parts), joint)
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1 and lengths == sorted(lengths, reverse=True)


def test_a_group_of_one_needs_no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "EPOCH0_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    with joined(device="cpu") as group:
        assert (group.rank, group.size, group.first) == (0, 1, True)
        assert group.broadcast({"a": 1}) == {"a": 1}
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"but RANK, .* not; start the program with torchrun"), joined():
        pass
