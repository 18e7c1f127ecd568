"""What a run borrows from the process it runs in and gives back: torch's global random numbers, and Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def own_randomness(device: torch.device) -> Iterator[Callable[[int], object]]:
    """Lend the global generators to the run's steps and put them back afterwards."""
    if device.type != "cuda":
        with torch.random.fork_rng(devices=[]):
            yield torch.default_generator.manual_seed
        return
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.random.fork_rng(devices=[index]):

        def reseed(seed: int) -> None:
            torch.default_generator.manual_seed(seed)
            torch.cuda.default_generators[index].manual_seed(seed)

        yield reseed


@contextlib.contextmanager
def deferred_interrupt(active: bool) -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until the step is whole (half an update cannot be resumed); a second one goes through."""
    pressed = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not active or not in_main_thread or usual is not signal.default_int_handler:
        yield pressed.is_set
        return

    def note(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, usual)
