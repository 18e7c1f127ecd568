"""Memory of tensors that are no more is used again, and only then."""

import gc
import threading

import numpy as np
import pytest
import torch

from epoch0 import regions
from epoch0.regions._room import Reuse, grown, room, roomy
from region_twins import recipe

LIKE = torch.zeros(1, dtype=torch.float64)
LARGE = (1 << 10, 1 << 7)


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    with Reuse(1 << 24):
        first = room(LARGE, LIKE).fill_(1.0)
        view, place = first[10:20].t(), first.data_ptr()
        del first
        gc.collect()
        second = room(LARGE, LIKE).fill_(2.0)  # the view still holds the memory
        assert second.data_ptr() != place and bool((view == 1.0).all())
        del view
        gc.collect()
        third = room((LARGE[0] - 9, LARGE[1]), LIKE)  # a little less fits too
        assert third.data_ptr() == place and third.shape == (LARGE[0] - 9, LARGE[1]) and third.is_contiguous()
        third.fill_(3.0)
        assert bool((second == 2.0).all())
    assert not Reuse.free and Reuse.users == 0
    assert bool((third == 3.0).all())  # outlives the block
    del second, third
    gc.collect()
    assert not Reuse.free


def test_no_more_is_kept_than_may_lie_idle() -> None:
    with Reuse(5 << 19), Reuse(1 << 18):
        tensors = [room(LARGE, LIKE) for _ in range(5)]
        tensors.clear()
        gc.collect()
        assert sum(capacity * len(free) for capacity, free in Reuse.free.items()) == 2 << 20
    assert Reuse.most == 0


def test_nothing_is_kept_outside() -> None:
    one = room(LARGE, LIKE)
    assert one.shape == LARGE and one.dtype == torch.float64
    del one
    assert not Reuse.free and room((3,), LIKE.float()).dtype == torch.float32


def test_threads_do_not_share_memory_in_use() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        source = np.random.default_rng(number)
        for _ in range(200):
            mine = room((int(source.integers(900, 1100)), 1 << 7), LIKE).fill_(float(number))
            other = room(LARGE, LIKE).fill_(-float(number))
            if not (bool((mine == number).all()) and bool((other == -number).all())):
                wrong.append(number)

    with Reuse(1 << 24):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_walk_that_fails_keeps_nothing() -> None:
    net = recipe([8, 64, 64, 64, 1], 0.1)
    with pytest.raises(ValueError, match="were reached"):
        regions.on_line(net, torch.zeros(8), 9 * torch.ones(8), memory=1e4)
    assert Reuse.users == 0 and not Reuse.free


def test_rows_are_added_in_place_once() -> None:
    like = torch.empty(0, dtype=torch.float64)
    first = roomy((10, 3), like)
    first[:] = torch.arange(30.0).view(10, 3)
    second = grown(first, 4)
    assert second.data_ptr() == first.data_ptr() and second.shape == (14, 3)
    second[10:] = -1.0
    again = grown(first, 4)  # what is behind it belongs to the other now
    again[10:] = -2.0
    assert again.data_ptr() != first.data_ptr() and bool((second[10:] == -1.0).all())
    assert torch.equal(again[:10], first) and torch.equal(second[:10], first)
    more = grown(second, 100)  # more than there is memory for
    assert more.data_ptr() != second.data_ptr() and torch.equal(more[:14], second) and more.shape == (114, 3)
    view = roomy((10, 3), like)[:]  # a view of it is not its owner
    assert grown(view, 1).data_ptr() != view.data_ptr()
