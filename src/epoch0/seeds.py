"""One seed argument everywhere: independent random streams named by a seed and a path of integers.

Stream ``(seed, 3, 7)`` is the same on every machine, worker and batch, and no call touches the global generators.
"""

from typing import TYPE_CHECKING

import numpy as np

from epoch0.arguments import Seed, checked

if TYPE_CHECKING:
    import torch


def _sequence(seed: int, path: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(int(seed), spawn_key=tuple(int(part) for part in path))


@checked
def numpy_generator(seed: Seed, *path: Seed) -> np.random.Generator:
    """A numpy generator for one named stream.

    >>> numpy_generator(0, 2, 5).integers(10) == numpy_generator(0, 2, 5).integers(10)
    np.True_
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, path)))


@checked
def generator(seed: Seed, *path: Seed) -> "torch.Generator":
    """A CPU torch generator for one named stream.

    >>> a, b = generator(0, 3), generator(0, 3)
    >>> bool((torch.rand(4, generator=a) == torch.rand(4, generator=b)).all())     # shape (4,)
    True

    ``path`` names the stream, such as by the index of a network. InputError unless it and the seed are integers >= 0.
    """
    import torch

    source = torch.Generator()
    state = source.get_state()
    # manual_seed would keep 32 bits only, so that two of 100,000 networks would probably share a stream. The whole
    # Mersenne state is filled instead, as numpy does it: 624 words after a header of 24 bytes.
    words = _sequence(seed, path).generate_state(624, np.uint32).astype(np.uint64)
    words[0] = 0x80000000
    fields = state.numpy()
    fields[0:8].view(np.uint64)[0] = words[1]  # what initial_seed() reports
    fields[8:16].view(np.int32)[:] = (1, 1)  # one word left before the state is renewed; seeded
    fields[16:24].view(np.uint64)[0] = 0
    fields[24 : 24 + 8 * 624].view(np.uint64)[:] = words
    return source.set_state(state)
