"""The clock of a dry run: full steps of the training loop on random data, and what a matrix product reaches here."""

import functools
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from epoch0.errors import InputError
from epoch0.experiments.cost import Speed
from epoch0.experiments.engine import one_thread
from epoch0.seeds import generator
from epoch0.train.device import check_device, chosen_device, precision_for
from epoch0.train.loop import train

if TYPE_CHECKING:
    from epoch0.experiments.cost import Workload

_SMALL = 2  # the smallest batch that batch norm can train on
_BLOCKS = 8  # the timed steps are cut into about so many, whose spread is the error
_ROUND = 2.5  # a step that warms up, one that is timed, and the forward half of the one that stops the clock
_RUNG = 4  # a look at a batch takes at most one part in so many of the time that is left
_STILL = 1e-9  # learning rate: the step is computed, the weights stay where they are
_ROOM = 0.8  # of the memory that is free
_BESIDE = 1.5  # memory of a step over that of the tensors its backward pass holds
_FEW, _MANY = 1, 3  # steps that warm up, on a CPU and on CUDA
_SIDES = {"cpu": (256, 1024), "cuda": (8192,)}  # of the matrices whose product may be the peak
_TURNS = 100  # at most, of each product
_MOST_DATA = 2**28  # bytes of random inputs


def step_speed(work: "Workload", seconds: float, device: str | torch.device | None = None) -> Speed:
    """See :meth:`epoch0.experiments.cost.Workload.speed`.

    Computed with one thread of the CPU, as trials are.
    """
    end = time.perf_counter() + seconds
    place = chosen_device() if device is None else check_device(device)
    with one_thread():
        try:
            model = work.model()
            small = min(_SMALL, work.batch_size)
            flops, held = _counted(model, work, small, place)
            peak = device_peak(place, precision_for(work.training.get("precision", "float32"), place))
            batch, notes = _affordable(model, work, held / small, place)
            if place.type == "cpu" and (fitting := _in_time(model, work, batch, end, place)) < batch:
                batch, notes = fitting, ["too large for its share of the time"]
            while True:
                try:
                    rates = _timed(model, work, batch, end - time.perf_counter(), place)
                    break
                except (RuntimeError, MemoryError, InputError) as error:
                    if batch == small or not _out_of_memory(error):
                        raise
                    batch, notes = max(small, batch // 2), ["does not fit into memory"]
        except (RuntimeError, MemoryError, InputError) as error:
            if not _out_of_memory(error):
                raise
            return Speed(math.nan, note="does not fit into memory")
    if batch < work.batch_size:
        notes.append(f"timed {batch} of {work.batch_size} images a step")
    spread = float(rates.std(ddof=1)) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan
    return Speed(float(rates.mean()), spread, batch, flops / small, peak, ", ".join(notes))


@functools.cache
def device_peak(device: torch.device, precision: str) -> float:
    """Multiplications and additions a second: the fastest of a large square matrix product.

    On a CPU also of a small one and of a channels-last convolution, which its libraries may be faster at.

    Args:
        device: where.
        precision: ``"float32"`` or ``"bfloat16"``.
    """
    dtype = getattr(torch, precision)
    ways = [_square(side, device, dtype) for side in _SIDES.get(device.type, (1024,))]
    if device.type == "cpu":
        ways.append(_convolution(dtype))
    least, begun = [math.inf] * len(ways), time.perf_counter()
    with torch.no_grad():
        for _ in range(_TURNS):  # in turns, so that a second in which others are busy does not meet one of them alone
            for place, (_, compute) in enumerate(ways):
                _wait(device)
                start = time.perf_counter()
                compute()
                _wait(device)
                least[place] = min(least[place], time.perf_counter() - start)
            if time.perf_counter() - begun > 1.0:  # seconds
                break
    return max(flops / seconds for (flops, _), seconds in zip(ways, least, strict=True))


def _square(side: int, device: torch.device, dtype: torch.dtype) -> tuple[int, Callable[[], object]]:
    """A matrix product: its multiplications and additions, and the function that does it."""
    a = torch.randn(side, side, generator=generator(0)).to(device, dtype)
    return 2 * side**3, lambda: a @ a


def _convolution(dtype: torch.dtype) -> tuple[int, Callable[[], object]]:
    """Of 128 channels and 3x3 kernels, on 16 images of 18x18."""
    weight, images = (
        torch.randn(shape, generator=generator(0)).to(dtype=dtype, memory_format=torch.channels_last)
        for shape in ((128, 128, 3, 3), (16, 128, 18, 18))
    )
    return 2 * 16 * 16 * 16 * 128 * 128 * 9, lambda: F.conv2d(images, weight)


class _Enough(Exception):
    """The clock has seen enough steps."""


class _Clock:
    """A loss that notes the time: between two calls lies one whole step of the loop, whatever the loop does."""

    def __init__(self, loss: Any, seconds: float, warm: int, device: torch.device) -> None:
        self.loss, self.seconds, self.device = loss, seconds, device
        self.calls, self.due = 0, warm
        self.stamps: list[tuple[int, float]] = []  # steps done, seconds

    def __call__(self, outputs: Tensor, targets: Tensor) -> Any:
        if self.calls == self.due:
            _wait(self.device)
            self.stamps.append((self.calls, time.perf_counter()))
            self.due += self._next()
        self.calls += 1
        return self.loss(outputs, targets)

    def _next(self) -> int:
        """Steps until the next look: the device is waited for at the ends of blocks only."""
        (first, begun), (last, now) = self.stamps[0], self.stamps[-1]
        if last == first:
            return 1
        step = (now - begun) / (last - first)
        left = begun + self.seconds - now
        if left < step:
            raise _Enough
        return max(1, min(round(self.seconds / (_BLOCKS * step)), int(left / step)))

    def rates(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Steps a second in each block; without the first, a single step, where there are others."""
        steps, times = np.diff(np.array(self.stamps), axis=0).T
        return np.asarray(steps / times)[1 if len(steps) > 2 else 0 :]


def _timed(
    model: nn.Module, work: "Workload", batch: int, seconds: float, device: torch.device
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Images a second in each block of steps of about so many seconds, at least one step."""
    loss, warm = work.training.get("loss", F.cross_entropy), _MANY if device.type == "cuda" else _FEW
    clock = _Clock(loss, seconds, warm, device)
    with suppress(_Enough):
        _steps(model, work, batch, 2**31, device, clock)
    return clock.rates() * batch


def _in_time(model: nn.Module, work: "Workload", batch: int, end: float, device: torch.device) -> int:
    """The batch of which a round of steps fits into the time, at most the asked one.

    A small batch says little of a large one, since much of its time does not depend on its size: the step is looked at
    with larger and larger ones, as long as that takes a small part of the time that is left.
    """
    size = min(_SMALL, work.batch_size)
    while True:
        step = size / float(np.mean(_timed(model, work, size, 0.0, device)))
        fitting = int(size * (end - time.perf_counter()) / (_ROUND * step))
        if fitting >= batch or fitting < 2 * _RUNG * size:
            return min(batch, max(size, fitting))
        size = fitting // _RUNG


def _counted(model: nn.Module, work: "Workload", batch: int, device: torch.device) -> tuple[float, int]:
    """Multiplications and additions of one step, and bytes that its backward pass holds."""
    held: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    counter = FlopCounterMode(display=False)
    with counter, saved_tensors_hooks(note, lambda tensor: tensor):
        _steps(model, work, batch, 1, device, work.training.get("loss", F.cross_entropy))
    return float(counter.get_total_flops()), sum(held.values())


def _steps(model: nn.Module, work: "Workload", batch: int, steps: int, device: torch.device, loss: Any) -> None:
    """Steps of the training loop itself."""
    given = {name: value for name, value in work.training.items() if name not in ("loss", "learning_rate", "schedule")}
    train(
        model, _data(work, batch), steps=steps, batch_size=batch, learning_rate=_STILL, loss=loss, device=device,
        evaluate_every=2**31, **given,
    )  # fmt: skip


def _data(work: "Workload", batch: int) -> Any:
    """Random examples: a few batches, as far as memory allows."""
    most = max(1, _MOST_DATA // (4 * math.prod(work.inputs) * batch))
    examples = batch * min(4, most)
    if work.data is not None:
        return work.data(examples)
    source = generator(0)
    x = torch.randn(examples, *work.inputs, generator=source)
    return x, torch.randint(work.classes, (examples,), generator=source)


def _affordable(model: nn.Module, work: "Workload", held: float, device: torch.device) -> tuple[int, list[str]]:
    """The batch that memory is enough for, at most the asked one."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    fixed = 4 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    fitting = int((_ROOM * free - fixed) / (_BESIDE * held)) if held else work.batch_size
    if fitting >= work.batch_size:
        return work.batch_size, []
    return max(min(_SMALL, work.batch_size), fitting), ["does not fit into memory"]


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether that is what went wrong; the loop says it in words and keeps the cause."""
    if error is None:
        return False
    lack = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
    return lack or _out_of_memory(error.__cause__)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
