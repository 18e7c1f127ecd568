"""A pruned model made really sparse, where that is measured to be faster, and what it saves (THEORY section 4)."""

import copy
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.prune._copies import plain_copy, replaced
from epoch0.prune._csr import CsrConv, CsrLinear
from epoch0.prune._csr_result import CsrExport, LayerExport
from epoch0.prune._settings import Progress
from epoch0.tracing.guard import bare, check_model, unchanged
from epoch0.tracing.operations import tensors_in

BATCH = 32
"""Rows of the inputs that a linear layer is timed on if no batch is given."""

ENOUGH = 0.02
"""Seconds that a layer is timed for on each side."""

MARGIN = 0.95
"""A layer is faster if it takes at most this part of the dense seconds; what is closer may be noise."""

HOPELESS = 2.0
"""A sparse layer that takes so many times the dense seconds at first sight is not timed further."""

FIRST = 8
"""Examples of the first sight at a convolution, whose seconds grow with their number on both sides alike."""

SLOW = 1.5
"""The same at those few examples: these are timed as long as any others, so that less of it is noise."""

LONG = 0.1
"""Seconds of a turn from which it need not be repeated to be told from noise."""

_READ_BY_PARENT = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


def to_csr(
    model: nn.Module, x: Tensor | None = None, *, only_faster: bool = True, progress: Progress | None = None
) -> CsrExport:
    """A new model, for inference, that stores and multiplies only the weights that are kept.

    >>> export = to_csr(model, x)                               # x: a batch as large as those to come
    >>> print(export)                                           # per layer: density, bytes, seconds, what was done
    >>> export.model(x)                                         # equal to the pruned model up to rounding

    Each ``nn.Linear``, ``nn.Conv1d`` and ``nn.Conv2d`` that has zeros is built as compressed sparse rows (convolutions
    multiply an unfolded image) and timed against the dense layer on inputs of the shapes that the batch brings. Linear
    layers pay from about 10 % density on a CPU, less for small ones and single examples; convolutions only with many
    channels and small images. The rest of the model is a copy with its masks baked in. Weights that are sparse become
    constants: the new model cannot train them.

    Args:
        model: pruned, or baked with zeros; it stays as it is.
        x: a batch, shape (examples, ...): its size and shape decide what is faster. None: linear layers are timed on
            batches of 32, and convolutions stay dense.
        only_faster: leave layers dense that would be slower; False makes all of them sparse that can be.
        progress: called with the part of the layers that is done, from 0 to 1, and the name of the next.

    Returns:
        The new model, in eval mode, and one row a layer.

    Raises:
        InputError: if the model has no layer with zeros that can be sparse, or does not take x.

    Source: THEORY section 4; the layout is the common one of Saad 2003, section 3.4.
    """
    check_model(model)
    plain = plain_copy(bare(model))
    x = None if x is None else _as_the_model_s(plain, x)
    inputs = None if x is None else _inputs(plain, x)
    sparse: nn.Module = copy.deepcopy(plain)
    rows, made = [], 0
    homes = dict(plain.named_modules())
    layers = {name: layer for name, layer in homes.items() if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd)}
    for number, (name, layer) in enumerate(layers.items()):
        if progress is not None:
            progress(number / len(layers), name)
        reason, shape = _reason(name, layer, homes, inputs)
        if reason:
            rows.append(_left(name, layer, reason))
            continue
        row, module = _timed(name, layer, shape, only_faster)
        rows.append(row)
        if module is not None:
            made += 1
            sparse = replaced(sparse, name, module)
    if not rows or all(row.density == 1.0 for row in rows):
        raise InputError(
            f"the model {type(plain).__name__} has no linear layer or convolution with zeros in it: prune it first, "
            "with apply(model, masks)."
        )
    before, after = _bytes(plain), _bytes(sparse)
    if x is None:
        return CsrExport(sparse, tuple(rows), before, after, None, None, None, torch.get_num_threads())
    with torch.no_grad(), unchanged(plain), unchanged(sparse):  # one that counts its calls, or draws
        sample = x.detach()
        if made == 0:  # the same program
            difference, dense_seconds = 0.0, _alone(lambda: plain(sample.clone()), x.device)
            csr_seconds = dense_seconds
        else:
            pairs = zip(tensors_in(sparse(sample.clone())), tensors_in(plain(sample.clone())), strict=True)
            difference = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
            dense_seconds, csr_seconds = _race(lambda: plain(sample.clone()), lambda: sparse(sample.clone()), x.device)
    return CsrExport(sparse, tuple(rows), before, after, dense_seconds, csr_seconds, difference,
                     torch.get_num_threads())  # fmt: skip


def _as_the_model_s(model: nn.Module, x: Tensor) -> Tensor:
    """A floating-point batch in the dtype of the model's first parameter, as scores and rescaling take it, too."""
    if x.dim() == 0 or len(x) == 0:
        raise InputError(f"x has shape {tuple(x.shape)}: an empty batch; give as many examples as there will be.")
    first = next((p for p in model.parameters() if p.is_floating_point()), None)
    return x if first is None or not x.is_floating_point() else x.to(first.dtype)


def _inputs(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The first input of each linear layer and convolution that is called, by the layer's name."""
    seen: dict[str, Tensor] = {}
    with ExitStack() as stack:
        stack.enter_context(unchanged(model))
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
                handle = module.register_forward_pre_hook(_remember(seen, name))
                stack.callback(handle.remove)
        try:
            with torch.no_grad():
                model(x.detach().clone())
        except Exception as error:
            raise InputError(f"the model does not take x of shape {tuple(x.shape)}: {error}") from error
    return seen


def _remember(seen: dict[str, Tensor], name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen.setdefault(name, torch.empty(args[0].shape, dtype=args[0].dtype, device="meta"))

    return hook


def _reason(
    name: str, layer: nn.Module, homes: dict[str, nn.Module], inputs: dict[str, Tensor] | None
) -> tuple[str, tuple[int, ...]]:
    """Why a layer stays dense without being timed, or "" and the shape of its input."""
    parent = homes[name.rpartition(".")[0]]
    weight = layer.weight
    assert isinstance(weight, Tensor)
    if bool((weight != 0).all()):
        return "dense: it has no zeros", ()
    if type(layer) not in (nn.Linear, nn.Conv1d, nn.Conv2d):
        return f"dense: a {type(layer).__name__} has no sparse form here", ()
    if weight.dtype not in (torch.float32, torch.float64):
        return f"dense: sparse rows of {weight.dtype} are not supported", ()
    if isinstance(parent, _READ_BY_PARENT):
        return f"dense: the {type(parent).__name__} around it reads its weight", ()
    if layer._forward_hooks or layer._forward_pre_hooks:
        return "dense: it has hooks of its own", ()
    if inputs is not None and name not in inputs:
        return "dense: it is not called as a module", ()
    if inputs is None and not isinstance(layer, nn.Linear):
        return "dense: no batch to time it on; give x", ()
    return "", (BATCH, weight.shape[1]) if inputs is None else tuple(inputs[name].shape)


def _timed(
    name: str, layer: nn.Module, shape: tuple[int, ...], only_faster: bool
) -> tuple[LayerExport, CsrLinear | CsrConv | None]:
    """The measurement of one layer, and the sparse layer if it is to be used."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    x = torch.randn(shape, dtype=weight.dtype, device="cpu", generator=torch.Generator().manual_seed(0))
    x = x.to(weight.device)
    candidates: list[CsrLinear | CsrConv]
    if isinstance(layer, nn.Linear):
        candidates = [CsrLinear(layer)]
    else:
        assert isinstance(layer, nn.Conv1d | nn.Conv2d)
        candidates = [CsrConv(layer, together) for together in (False, True)]
        candidates = candidates[:1] if x.shape[0] == 1 else candidates
    with torch.no_grad():
        if not isinstance(layer, nn.Linear) and x.dim() == layer.weight.dim() and len(x) > 2 * FIRST:
            races = [_race(partial(layer, x[:FIRST]), partial(one, x[:FIRST]), x.device) for one in candidates]
            ratios = [csr / dense for dense, csr in races]
            limit = min(SLOW, 1.25 * min(ratios))
            hopeful = [one for one, ratio in zip(candidates, ratios, strict=True) if ratio <= limit]
            x, candidates = (x, hopeful) if hopeful else (x[:FIRST], candidates)
        if len(x) == shape[0]:
            races = [_race(partial(layer, x), partial(candidate, x), x.device) for candidate in candidates]
    best = min(range(len(races)), key=lambda i: races[i][1] / races[i][0])
    dense, csr = races[best]
    module = candidates[best]
    faster = csr < MARGIN * dense
    used = faster or not only_faster
    status = "sparse" if faster else "sparse as asked, though not faster" if used else "dense: sparse is not faster"
    row = LayerExport(
        name=name, kind=type(layer).__name__, shape=tuple(weight.shape), density=_density(weight), sparse=used,
        dense_bytes=weight.numel() * weight.element_size(), csr_bytes=module.matrix.bytes,
        dense_seconds=dense, csr_seconds=csr, input_shape=tuple(x.shape), status=status,
    )  # fmt: skip
    return row, module if used else None


def _left(name: str, layer: nn.Module, reason: str) -> LayerExport:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    size = weight.numel() * weight.element_size()
    return LayerExport(
        name=name, kind=type(layer).__name__, shape=tuple(weight.shape), density=_density(weight), sparse=False,
        dense_bytes=size, csr_bytes=None, dense_seconds=None, csr_seconds=None, input_shape=(), status=reason,
    )  # fmt: skip


def _race(one: Callable[[], Any], other: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Least seconds of two functions, run in turns: noise only ever adds, and hits both alike.

    CPU seconds with one thread, which other work on the machine hardly changes; seconds of the clock otherwise.
    """
    seconds, runs = _clock(device), (one, other)
    first = [max(seconds(run, 1), 1e-7) for run in runs]  # also warms up
    if sum(first) < LONG:
        first = [min(a, max(seconds(run, 1), 1e-7)) for a, run in zip(first, runs, strict=True)]
    if first[1] > HOPELESS * first[0]:
        return first[0], first[1]
    times = [max(1, int(ENOUGH / 5 / a)) for a in first]
    best = list(first)
    for _ in range(5 if sum(first) < LONG / 4 else 3 if sum(first) < LONG else 1):  # the longer, the less is noise
        best = [min(a, seconds(run, n)) for a, run, n in zip(best, runs, times, strict=True)]
    return best[0], best[1]


def _alone(run: Callable[[], Any], device: torch.device) -> float:
    """Least seconds of one function."""
    seconds = _clock(device)
    first = seconds(run, 1)
    return first if first >= LONG else min(first, *(seconds(run, 1) for _ in range(5)))


def _clock(device: torch.device) -> Callable[[Callable[[], Any], int], float]:
    """What measures the seconds of one call among so many."""
    on_device = device.type == "cuda"
    clock = time.process_time if torch.get_num_threads() == 1 and not on_device else time.perf_counter

    def seconds(run: Callable[[], Any], times: int) -> float:
        before = clock()
        for _ in range(times):
            run()
        if on_device:
            torch.cuda.synchronize()
        return (clock() - before) / times

    return seconds


def _density(weight: Tensor) -> float:
    return float(weight.count_nonzero()) / max(weight.numel(), 1)


def _bytes(model: nn.Module) -> int:
    """Memory of all parameters and buffers, shared ones once."""
    seen = {id(t): t for module in model.modules() for t in (*module._parameters.values(), *module._buffers.values())
            if t is not None}  # fmt: skip
    return sum(t.numel() * t.element_size() for t in seen.values())
