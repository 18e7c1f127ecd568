"""Keeping the largest scores: against a plain sort, with exact counts, floors, layer densities, and bad input."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from epoch0.errors import InputError
from epoch0.prune.masks.masks import keep, largest, shared_out
from epoch0.prune.scores.scores import Scores

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# few values, so that ties are common: both zeros, infinities, numbers that differ in their last bit, and subnormals
VALUES = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1.0 + 2**-23, 1.0 + 2**-52, 1e-45, -1e-45, 5e-324, 0.5, 2.0, 3e38)


def sorted_masks(scores: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """The twin: one stable sort of all scores as Python floats, largest first."""
    entries = [
        (-value, place) for place, value in enumerate(v for t in scores.values() for v in t.double().flatten().tolist())
    ]
    kept = {place for _, place in sorted(entries)[:count]}
    masks, start = {}, 0
    for name, tensor in scores.items():
        flags = [start + i in kept for i in range(tensor.numel())]
        masks[name] = torch.tensor(flags, dtype=torch.bool).reshape(tensor.shape)
        start += tensor.numel()
    return masks


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Tensor]:
    found = {}
    for number in range(draw(st.integers(1, 4))):
        rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
        numbers = st.one_of(st.sampled_from(VALUES), st.floats(allow_nan=False, width=64))
        values = draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
        dtype = draw(st.sampled_from(DTYPES))
        found[f"w{number}"] = torch.tensor(values, dtype=torch.float64).to(dtype).reshape(rows, columns)
    return found


@given(tensors(), st.floats(0, 1))
def test_largest_is_a_stable_sort(scores: dict[str, Tensor], share: float) -> None:
    count = round(share * sum(t.numel() for t in scores.values()))
    found, expected = largest(scores, count), sorted_masks(scores, count)
    assert sum(int(m.sum()) for m in found.values()) == count
    assert all(torch.equal(found[name], expected[name]) for name in scores)


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 100_000, 599_999, 600_000])
def test_largest_of_many_chunks(dtype: torch.dtype, count: int) -> None:
    source = torch.Generator().manual_seed(0)
    drawn = {"a": torch.randn(300, 1000, generator=source), "b": torch.randn(300_000, generator=source)}
    scores = {name: tensor.to(dtype) for name, tensor in drawn.items()}
    found = largest(scores, count)
    flat = torch.cat([t.flatten() for t in scores.values()]).double().numpy()
    order = np.argsort(-flat, kind="stable")[:count]
    expected = np.zeros(600_000, dtype=bool)
    expected[order] = True
    assert (torch.cat([m.flatten() for m in found.values()]).numpy() == expected).all()


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.25, 0.5, 0.98, 0.999])
def test_equal_scores_do_not_change_the_count(sparsity: float) -> None:
    scores = {"a": torch.ones(700, 1000), "b": torch.ones(3, 5)}
    masks = keep(scores, sparsity)
    total = 700_015
    assert masks.kept == total - round(sparsity * total)
    flat = torch.cat([m.flatten() for m in masks.values()])
    assert bool(flat[: masks.kept].all()) and not bool(flat[masks.kept :].any())


def test_halves_are_rounded_to_even() -> None:
    assert keep({"w": torch.arange(5.0)}, 0.5).kept == 3  # 2.5 removed: 2
    assert keep({"w": torch.arange(7.0)}, 0.5).kept == 3  # 3.5 removed: 4


def test_layout_and_order_of_names_decide_nothing_but_ties() -> None:
    scores = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(1))
    plain = keep({"w": scores}, 0.7)
    other = keep({"w": scores.contiguous(memory_format=torch.channels_last)}, 0.7)
    assert plain == other
    ties = {"b": torch.ones(2), "a": torch.ones(2)}
    assert keep(ties, 0.5)["b"].all()  # in the order of the mapping, not of the alphabet


@given(tensors(), st.floats(0, 0.95), st.integers(0, 3))
def test_floor_keeps_the_best_of_each_layer(scores: dict[str, Tensor], sparsity: float, floor: int) -> None:
    total = sum(t.numel() for t in scores.values())
    count = total - round(sparsity * total)
    least = {name: min(floor, t.numel()) for name, t in scores.items()}
    if count < max(1, sum(least.values())) or count < len(scores):
        return
    masks = keep(scores, sparsity, floor=floor)
    # the twin: the best of each layer are set, the rest is sorted
    forced = {name: sorted_masks({name: t}, least[name])[name] for name, t in scores.items()}
    entries, start = [], 0
    for name, t in scores.items():
        for i, value in enumerate(t.double().flatten().tolist()):
            if not forced[name].flatten()[i]:
                entries.append((-value, start + i, name, i))
        start += t.numel()
    expected = {name: forced[name].clone() for name in scores}
    for _, _, name, i in sorted(entries)[: count - sum(least.values())]:
        expected[name].view(-1)[i] = True
    assert masks.kept == count
    assert all(torch.equal(masks[name], expected[name]) for name in scores)


@pytest.mark.parametrize("layers", ["uniform", "erk"])
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("floor", [0, 2])
def test_layer_densities(layers: str, sparsity: float, floor: int) -> None:
    shapes = {"a": (20, 10, 3, 3), "b": (30, 20), "c": (5, 7), "d": (1, 3)}
    source = torch.Generator().manual_seed(3)
    scores = {name: torch.rand(shape, generator=source) for name, shape in shapes.items()}
    masks = keep(scores, sparsity, scope="layer", layers=layers, floor=floor)
    total = sum(math.prod(s) for s in shapes.values())
    assert masks.kept == total - round(sparsity * total)
    for name, mask in masks.items():
        assert torch.equal(mask, largest({name: scores[name]}, int(mask.sum()))[name])
        assert int(mask.sum()) >= floor
    if floor == 0:
        weight = {n: math.prod(s) if layers == "uniform" else sum(s) for n, s in shapes.items()}
        free = {n for n in shapes if masks.kept_of[n] < math.prod(shapes[n])}
        if free:
            scale = (masks.kept - sum(masks.kept_of[n] for n in shapes if n not in free)) / sum(weight[n] for n in free)
            assert all(abs(masks.kept_of[n] - scale * weight[n]) <= 1 for n in free)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 5), st.integers(0, 40)), min_size=1, max_size=8),
    st.floats(0, 1),
)
def test_shares_add_up_within_their_bounds(rows: list[tuple[float, int, int]], where: float) -> None:
    weights, low = [w for w, _, _ in rows], [least for _, least, _ in rows]
    high = [least + more for _, least, more in rows]
    total = sum(low) + round(where * (sum(high) - sum(low)))
    shares = shared_out(total, weights, low, high)
    assert sum(shares) == total
    assert all(a <= share <= b for a, share, b in zip(low, shares, high, strict=True))


def test_removed_weights_stay_removed_and_count() -> None:
    gone = {"a": torch.tensor([True, True, False, False])}
    scores = Scores({"a": torch.tensor([0.0, 0.0, -5.0, -6.0]), "b": torch.tensor([-7.0, 1.0, 2.0, -9.0])}, "", gone)
    masks = keep(scores, 0.5)
    assert masks["a"].tolist() == [False, False, True, True] and masks["b"].tolist() == [False, True, True, False]
    assert keep(scores, 0.25).kept == 6
    with pytest.raises(InputError, match=r"keeps 7 of 8 weights, but 2 are removed already: .* from 0\.25 to 1\."):
        keep(scores, 0.1)
    assert keep(scores, 0.5, scope="layer").kept_of == {"a": 2, "b": 2}
    assert keep(scores, 0.75, floor=1)["a"].tolist() == [False, False, True, False]


def test_fewer_weights_than_layers_are_named() -> None:
    scores = {f"layer{i}": torch.full((100, 100), float(i)) for i in range(5)}
    masks = keep(scores, 1 - 2 / 50_000)
    assert masks.kept == 2 and masks.dead == ("layer0", "layer1", "layer2", "layer3")
    with pytest.raises(InputError, match="floor=1 in 5 layers needs 5"):
        keep(scores, 1 - 2 / 50_000, floor=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sparsity": 1.0}, r"sparsity=1\.0.* in \[0, 1\)"),
        ({"sparsity": -0.1}, r"sparsity=-0\.1"),
        ({"sparsity": math.nan}, "sparsity=nan"),
        ({"sparsity": 98}, r"In percent\? Then it is 0\.98"),
        ({"sparsity": 0.9999999}, "leaves none of 12 weights; keep at least one"),
        ({"scope": "globl"}, "scope='globl' is not known; use 'global' or 'layer'"),
        ({"layers": "erk"}, "layers='erk' .*scope='layer'"),
        ({"layers": "ekr", "scope": "layer"}, r"Did you mean 'erk'\?"),
        ({"floor": -1}, "floor=-1"),
        ({"floor": 5}, r"floor=5 in 2 layers needs 10: sparsity must be from 0 to 0\.16"),
        ({"scores": {}}, "at least one"),
        ({"scores": {"a": torch.arange(3)}}, r"'a' are torch\.int64"),
        ({"scores": {"a": torch.ones(3), "b": torch.tensor([1.0, math.nan])}}, "'b' hold 1 NaN value out of 2"),
    ],
)
def test_bad_input(change: dict[str, object], message: str) -> None:
    given_: dict[str, object] = {"scores": {"a": torch.rand(2, 3), "b": torch.rand(6)}, "sparsity": 0.5, **change}
    scores, sparsity = given_.pop("scores"), given_.pop("sparsity")
    with pytest.raises(InputError, match=message):
        keep(scores, sparsity, **given_)  # type: ignore[arg-type]


MEMORY = """
import torch
from epoch0.prune.masks.masks import keep
torch.set_num_threads(1)
def peak():  # ru_maxrss would begin with the peak of the process that started this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
scores = {f"w{i}": torch.rand(1250, 2000, generator=torch.Generator().manual_seed(i)) for i in range(10)}
keep({"w": torch.rand(1000)}, 0.5)
before = peak()
masks = keep(scores, 0.98)
after = peak()
print((after - before) * 1024, masks.kept)
"""


@pytest.mark.slow
def test_twenty_five_million_scores_are_copied_twice_at_most() -> None:
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    grown, kept = map(int, run.stdout.split())
    assert kept == 500_000
    # 100 MB of scores and 25 MB of masks; one copy of the scores, and one that numpy parts
    assert grown < 2 * 100e6 + 3 * 25e6
