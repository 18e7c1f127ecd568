"""How many weights each layer keeps when layers are pruned one by one: uniform, ERK, or as told (THEORY section 4)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from epoch0.errors import InputError, suggest

LAYERS = ("uniform", "erk")


def kept_of_layers(
    shapes: Mapping[str, Sequence[int]],
    sparsity: float,
    layers: str | Mapping[str, float],
    least: Mapping[str, int],
    most: Mapping[str, int],
) -> dict[str, int]:
    """How many weights each layer keeps; together exactly what the sparsity leaves.

    >>> shapes, least, most = {"a": (10, 10), "b": (100, 10)}, {"a": 0, "b": 0}, {"a": 100, "b": 1000}
    >>> kept_of_layers(shapes, 0.9, "uniform", least, most)
    {'a': 10, 'b': 100}
    >>> kept_of_layers(shapes, 0.9, "erk", least, most)         # (10 + 10) : (100 + 10)
    {'a': 17, 'b': 93}

    Source: Evci et al. 2020 (RigL), section 3, for ERK.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    if isinstance(layers, str):
        if layers not in LAYERS:
            raise InputError(
                f"layers={layers!r} is not known; use 'uniform', 'erk' or a dict of sparsities."
                f"{suggest(layers, LAYERS)}"
            )
        told: dict[str, int] = {}
    else:
        told = {name: _told(name, share, sizes, least, most) for name, share in layers.items()}
    rest = [name for name in shapes if name not in told]
    if not rest:
        return {name: told[name] for name in shapes}
    size = [sizes[name] for name in rest]
    total = sum(size)
    weight = [float(sum(shapes[name])) if sizes[name] else 0.0 for name in rest] if layers == "erk" else size
    kept = total - round(sparsity * total)
    shares = shared_out(kept, weight, [least[name] for name in rest], [most[name] for name in rest])
    found = {**told, **dict(zip(rest, shares, strict=True))}
    return {name: found[name] for name in shapes}


def shared_out(total: int, weights: Sequence[float], low: Sequence[int], high: Sequence[int]) -> list[int]:
    """Whole shares that add up to the total, proportional to the weights as far as the bounds allow.

    >>> shared_out(10, [1.0, 1.0, 2.0], low=[0, 0, 0], high=[10, 1, 10])
    [3, 1, 6]

    The largest remainders are rounded up, the first of equal ones first.
    """
    weight, least, most = np.asarray(weights, dtype=np.float64), np.asarray(low), np.asarray(high)

    def at(scale: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.clip(scale * weight, least, most)

    # the sum grows with the scale: bisection until the two ends are neighbours
    below, above = 0.0, 1.0
    while at(above).sum() < total and above < 1e300:
        above *= 2
    while below < (middle := (below + above) / 2) < above:
        below, above = (middle, above) if at(middle).sum() < total else (below, middle)
    exact = at(above)
    whole = np.clip(np.floor(exact + 1e-9), least, most).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")  # largest remainder first
    step = 1 if whole.sum() < total else -1
    while whole.sum() != total:  # one round, or a second one where bounds stop the first
        for place in order if step > 0 else order[::-1]:
            if whole.sum() == total:
                break
            if least[place] <= whole[place] + step <= most[place]:
                whole[place] += step
    return [int(share) for share in whole]


def _told(
    name: str, sparsity: float, sizes: Mapping[str, int], least: Mapping[str, int], most: Mapping[str, int]
) -> int:
    if name not in sizes:
        raise InputError(f"layers names '{name}', which has no scores.{suggest(name, sizes)}")
    check_sparsity(sparsity, f"layers['{name}']")
    kept = sizes[name] - round(sparsity * sizes[name])
    if not least[name] <= kept <= most[name]:
        bound = f"the floor is {least[name]}" if kept < least[name] else f"only {most[name]} are not removed yet"
        raise InputError(f"layers['{name}']={sparsity} keeps {kept} of {sizes[name]} weights; {bound}.")
    return kept


def check_sparsity(sparsity: float, name: str = "sparsity") -> None:
    """Refuse what is no fraction removed."""
    number = isinstance(sparsity, int | float | np.integer | np.floating) and not isinstance(sparsity, bool)
    if not number or not 0 <= sparsity < 1:
        hint = ""
        if number and 1 < sparsity <= 100:
            hint = f" In percent? Then it is {float(sparsity) / 100:g}."
        elif number and sparsity == 1:
            hint = " 1 would remove every weight."
        raise InputError(f"{name}={sparsity!r} is no fraction of weights to remove; it is in [0, 1).{hint}")
