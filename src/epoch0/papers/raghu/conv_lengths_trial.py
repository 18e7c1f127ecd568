"""One trial of Raghu Figure 4: a block of conv nets before training, an arc between two images, its length by layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from epoch0.curves import Arc
from epoch0.data import load
from epoch0.errors import InputError
from epoch0.measure.length import trajectory_length
from epoch0.papers.raghu.convnet import ConvNet, layers
from epoch0.seeds import numpy_generator


@dataclass(frozen=True)
class BlockSpec:
    """A block of networks and the arc that goes through all of them.

    Attributes:
        data: name of the data set.
        network: of every network of the block.
        ends: the two test images at the ends of the arc.
        first: index of the first network of the block.
        networks: how many.
        points: of the arc at which lengths are measured.
    """

    data: str
    network: ConvNet
    ends: tuple[int, int]
    first: int
    networks: int
    points: int = 64


def block(spec: BlockSpec, seed: int) -> dict[str, Any]:
    """Measure one block; pixels have mean 0 and variance 1 in every channel over the training images.

    >>> block(spec, seed=0)["lengths"].shape                    # networks; the arc and the ten layers
    (10, 11)

    Args:
        spec: what to measure.
        seed: of the networks; a network is the same whatever the block it is measured in.

    Returns:
        ``lengths``, shape (networks, layers + 1), those of the arc itself first.

    Raises:
        InputError: if the data set is not there, has no such image, or its images do not fit the network.

    Source: Raghu et al. 2017, section 2.2, Figure 4.
    """
    torch.set_num_threads(1)
    weights = numpy_generator(seed).integers(2**31, size=spec.first + spec.networks)[spec.first :]
    nets = [spec.network.build(int(one)) for one in weights]
    outputs = [layer.output for layer in layers()]
    start, end = held_out_images(spec.data, spec.ends, spec.network.inputs)
    found = trajectory_length(nets, Arc(start, end), layers=outputs, points=spec.points, seed=seed)
    return {"lengths": np.asarray(found.network_lengths)}


def held_out_images(data: str, chosen: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    """Some test images as inputs, standardized by the training images, shape (chosen, \\*shape).

    Raises:
        InputError: if the data set is not there, has no such image, or its images have another shape.
    """
    train, test = load(data, "train"), load(data, "test")
    if test.images.shape[1:] != shape:
        raise InputError(f"images of {data} have the shape {test.images.shape[1:]}; the network takes {shape}.")
    if not all(0 <= one < len(test) for one in chosen):
        raise InputError(f"test images {chosen} of {data}: there are {len(test):,}, counted from 0.")
    inputs = test.inputs("standard", flatten=False, like=train)
    return torch.from_numpy(inputs[list(chosen)])
