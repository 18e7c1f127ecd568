"""Trial functions that worker processes import by name."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from epoch0.errors import InputError
from epoch0.seeds import numpy_generator


def _note(spec: dict[str, Any], seed: int) -> None:
    """Leave one mark an execution, if the spec names a folder for them."""
    if "marks" in spec:
        with open(Path(spec["marks"]) / f"{seed}", "a") as file:
            file.write(f"{os.getpid()}\n")


def draw(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """Random numbers and a product, of whatever size; it takes at least so many seconds."""
    time.sleep(spec.get("pause", 0.0))
    _note(spec, seed)
    size = spec.get("size", 3)
    matrix = numpy_generator(seed, 1).standard_normal((size, size))
    return {"seed": seed, "mean": matrix.mean(), "product": matrix @ matrix.T, "law": str(spec.get("law"))}


def sleep(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """Take some seconds; leave a mark at the beginning and one at the end, and a process that goes on."""
    if "marks" in spec:
        (Path(spec["marks"]) / f"child{seed}").write_text(str(subprocess.Popen(["sleep", "60"]).pid))
        (Path(spec["marks"]) / f"begun{seed}").write_text(str(os.getpid()))
    time.sleep(spec["seconds"])
    _note(spec, seed)
    return {"seed": seed}


def nothing(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """As little as possible."""
    return {"seed": seed}


def fail(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """Raise for the seeds the spec names."""
    _note(spec, seed)
    if seed in spec["bad"]:
        if spec.get("input"):
            raise InputError("the data set is absent; fetch it.")
        raise ZeroDivisionError("no way")
    if seed in spec.get("unkept", []):
        return {"what": object()}
    return {"seed": seed}


def die(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """Kill the worker process for the seeds the spec names; `once` only the first time; `how` is the signal."""
    _note(spec, seed)
    if seed in spec["bad"]:
        mark = Path(spec["marks"]) / f"died{seed}"
        if not (spec.get("once") and mark.exists()):
            mark.touch()
            os.kill(os.getpid(), spec.get("how", signal.SIGKILL))
    return {"seed": seed}


class Odd(BaseException):
    """No Exception, and it cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError


def misbehave(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """What the spec says for this seed is done to the process that the trial runs in."""
    match spec["how"].get(str(seed)):
        case "exit":
            os._exit(0)
        case "odd":
            raise Odd
        case "interrupt":
            raise KeyboardInterrupt
        case "memory":
            bytearray(1 << 60)
        case "long":
            raise ValueError("two\nlines, " + "x" * 10**6)
        case "mute":
            sys.stdout.close()
        case "fork":
            (Path(spec["marks"]) / "child").write_text(str(os.fork()))
        case "babble":
            for number in range(3, 64):
                if os.path.exists(f"/proc/self/fd/{number}") and "socket" in os.readlink(f"/proc/self/fd/{number}"):
                    os.write(number, b"\x80\x04garbage....")
    return {"seed": seed}


def surroundings(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """What a trial sees of its process."""
    import torch

    return {
        "threads": torch.get_num_threads(),
        "openmp": os.environ["OMP_NUM_THREADS"],
        "interrupt_ignored": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "main_file": getattr(sys.modules["__main__"], "__file__", None),
        "process": os.getpid(),
        "array": np.arange(spec.get("size", 2)),
    }


def faults(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """How often the process had to ask for a page, in steps that take and free the same 40 MB in pieces of 4 MB."""
    for done in range(spec["steps"]):
        if done == 1:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        held = [np.ones(spec["numbers"]) for _ in range(spec["pieces"])]
        del held
    asked = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return {"faults": asked, "kept": os.environ.get("MALLOC_TRIM_THRESHOLD_")}


def visible_devices(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """What this process was told of accelerators; it waits so that another trial goes to another process."""
    time.sleep(spec["seconds"])
    return {"visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""), "process": os.getpid()}
