"""Seeds name streams, errors name what was passed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epoch0.errors import InputError, check_finite, suggest
from epoch0.seeds import generator, numpy_generator

PINNED = ([1230491694, 95419988, 194939935], [363587739, 126319416, 1534238058])
paths = st.lists(st.integers(0, 2**32), max_size=3).map(tuple)


@given(st.integers(0, 2**64), paths, paths)
def test_streams_differ_exactly_when_their_names_do(seed: int, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    first = torch.randint(2**62, (2,), generator=generator(seed, *a))
    second = torch.randint(2**62, (2,), generator=generator(seed, *b))
    assert torch.equal(first, second) == (a == b)
    assert (numpy_generator(seed, *a).integers(2**62) == numpy_generator(seed, *b).integers(2**62)) == (a == b)


def test_streams_are_pinned() -> None:
    # a change here would change every published number
    assert torch.randint(2**31, (3,), generator=generator(0)).tolist() == PINNED[0]
    assert torch.randint(2**31, (3,), generator=generator(7, 3)).tolist() == PINNED[1]


def test_the_bits_are_numpys_own_mersenne_twister() -> None:
    words = np.random.SeedSequence(5, spawn_key=(2,)).generate_state(624, np.uint32)
    words[0] = 0x80000000
    twin = np.random.MT19937()
    twin.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    expected = [int(word) for word in twin.random_raw(2000)]
    drawn = torch.empty(2000, dtype=torch.int64).random_(0, 2**20, generator=generator(5, 2))
    assert [word % 2**20 for word in expected] == drawn.tolist()


@pytest.mark.slow
def test_many_streams_are_all_different() -> None:
    # with 32-bit seeds this would fail with probability 1 - exp(-20000^2 / 2^33) = 5 %, and at 10^5 streams with 69 %
    first = {tuple(torch.randint(2**62, (2,), generator=generator(1, i)).tolist()) for i in range(20_000)}
    assert len(first) == 20_000


@pytest.mark.parametrize("seed", [-1, 1.5, "3", True, None])
def test_bad_seed(seed) -> None:
    with pytest.raises((InputError, Exception), match=r"seed|type"):
        generator(seed)


def test_check_finite_says_where() -> None:
    check_finite("x", np.zeros(3))
    with pytest.raises(InputError, match=r"weights holds NaN: 2 of its 6 .* the first at index \(1, 0\)"):
        check_finite("weights", torch.tensor([[0.0, 1.0, 2.0], [float("nan"), float("inf"), 0.0]]))
    with pytest.raises(InputError, match=r"infinity.*at index \(1,\)"):
        check_finite("x", [0.0, float("inf")])


def test_suggest() -> None:
    assert "fig3b" in suggest("price-tanner/fig3", ["price-tanner/fig3b", "raghu/fig1"])
    assert "'Linear'" in suggest("Linaer", ["Bilinear", "Linear"])
    assert suggest("zzz", ["relu"]) == ""


def test_an_alias_for_arrays_with_a_name_of_its_own_takes_no_other_union(monkeypatch: pytest.MonkeyPatch) -> None:
    """From numpy 2.5 on ``ArrayLike`` has no parts; then ``bool | None`` is still True, False or None."""
    from epoch0 import arguments

    monkeypatch.setattr(arguments, "ArrayLike", type("Named", (), {}))
    assert arguments._union((bool, type(None))).take("trial", False) is False
