"""How many linear regions a network can have, whatever its weights (THEORY section 5 and 1.3).

The bounds are exact Python integers. Conventions: ``widths`` are those of the hidden layers, ``inputs`` the dimension
of the input, or of the line or plane in question, and ``faces`` the number T of break points of the activation:
1 for ReLU, leaky ReLU and abs, 2 for hard tanh and ReLU6. An InputError names the argument that cannot be used.

>>> e0.theory.regions.upper_bound([64, 64, 64], inputs=2)
9011897441
"""

import math
from collections.abc import Sequence

from epoch0.arguments import Size, Whole, checked
from epoch0.errors import InputError


@checked
def arrangement_regions(planes: Whole, dimension: Whole) -> int:
    """Largest number of regions into which hyperplanes cut a space of that dimension: sum of C(planes, i).

    >>> arrangement_regions(3, 2), arrangement_regions(64, 1)
    (7, 65)

    Planes in general position reach it, and so does a layer of as many ReLU neurons with random weights.

    Source: Zaslavsky's theorem; Raghu et al. 2017, Theorem 5.
    """
    return sum(math.comb(planes, i) for i in range(min(planes, dimension) + 1))


@checked
def upper_bound(widths: Sequence[Size], inputs: Size, *, faces: Size = 1) -> int:
    """No network of these widths has more activation regions, whatever its weights: a product over layers.

    >>> upper_bound([2, 2, 2], inputs=1), upper_bound([4, 4], inputs=2, faces=2)
    (27, 1369)

    A layer's neurons cut each region of the layers before along hyperplanes, into no more than
    :func:`arrangement_regions`; together O(k^(mn)) for n layers of width k and m inputs.

    Source: Raghu et al. 2017, Theorems 1 and 5.
    """
    if not len(widths):
        raise InputError("widths is empty; name the widths of the hidden layers: [64, 64, 64].")
    return math.prod(arrangement_regions(faces * width, inputs) for width in widths)
