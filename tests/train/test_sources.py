"""Sources: batches are the data to the last bit, wherever they lie, and what is wrong with them is told in words."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epoch0.data import DataSet, load
from epoch0.errors import InputError
from epoch0.train.data import Images, PadCropFlip, Pair, check_classes


def made(seed: int = 0, count: int = 40, channels: int = 3, split: str = "train") -> DataSet:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, channels, 6, 5), dtype=np.uint8) // np.uint8(1 + seed)
    return DataSet("made", split, images, random.integers(0, 4, count), tuple("abcd"))


CHOSEN = st.lists(st.integers(0, 39), max_size=60)


@given(CHOSEN, st.integers(0, 2**62), st.integers(1, 4), st.sampled_from(["standard", "unit"]))
def test_images_are_the_inputs_of_the_data_set_to_the_bit(
    numbers: list[int], seed: int, channels: int, normalize: str
) -> None:
    train, test = made(0, channels=channels), made(1, channels=channels, split="test")
    chosen = torch.tensor(numbers, dtype=torch.int64)
    like = train if normalize == "standard" else None
    whole = torch.from_numpy(test.inputs(normalize, flatten=False, like=like))
    x, y = Images.of(test, normalize=normalize, like=like).batch(chosen, seed)
    assert x.dtype == torch.float32 and torch.equal(x, whole[chosen])
    assert torch.equal(y, torch.from_numpy(test.labels)[chosen]) and y.dtype == torch.int64
    rows = Images.of(test, normalize=normalize, like=like, flatten=True)
    flat, _ = rows.batch(chosen, seed)
    assert rows.classes == 4 and rows.shape == flat.shape[1:]
    assert torch.equal(flat, torch.from_numpy(test.inputs(normalize, like=like))[chosen])


@given(CHOSEN, st.integers(0, 2**62))
def test_augmented_images_are_padded_black_then_scaled(numbers: list[int], seed: int) -> None:
    train, chosen = made(), torch.tensor(numbers, dtype=torch.int64)
    augment = PadCropFlip(2)
    x, _ = Images.of(train, augment=augment).batch(chosen, seed)
    pixels = augment(torch.from_numpy(train.images)[chosen], chosen, seed).numpy()
    mean, std = (rows.astype(np.float32).reshape(3, 1, 1) for rows in train.scaling())
    assert np.array_equal(x.numpy(), (pixels.astype(np.float32) - mean) / std)


@given(CHOSEN, st.integers(0, 2**62))
def test_tensors_are_what_was_given(numbers: list[int], seed: int) -> None:
    inputs, targets = torch.randn(40, 2, 3, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40)
    chosen = torch.tensor(numbers, dtype=torch.int64)
    x, y = Pair(inputs, targets).batch(chosen, seed)
    assert torch.equal(x, inputs[chosen]) and torch.equal(y, targets[chosen])


def test_real_digits() -> None:
    train, test = load("digits"), load("digits", "test")
    x, y = Images.of(test, like=train, flatten=True).batch(torch.arange(360), 0)
    assert np.array_equal(x.numpy(), test.inputs("standard", like=train)) and y.tolist() == test.labels.tolist()


# --- fingerprints


def test_fingerprints_tell_data_and_what_is_done_to_them() -> None:
    base, other = made(), made()
    other.images[3, 1, 2, 2] ^= 1
    relabelled = DataSet("made", "train", base.images, (base.labels + 1) % 4, base.classes)
    sources = [
        Images.of(base), Images.of(other), Images.of(relabelled), Images.of(base, normalize="unit"),
        Images.of(base, like=made(1)), Images.of(base, flatten=True), Images.of(base, augment=PadCropFlip(4)),
        Images.of(base, augment=PadCropFlip(3)), Images.of(base, augment=PadCropFlip(4, flip=False)),
        Pair(torch.eye(3), torch.arange(3)), Pair(torch.eye(3), torch.tensor([0, 2, 1])),
        Pair(torch.eye(3) * 2, torch.arange(3)),
    ]  # fmt: skip
    assert len({source.fingerprint for source in sources}) == len(sources)
    same = [Images.of(made()), Images.of(made()).to("cpu")]
    assert {source.fingerprint for source in same} == {sources[0].fingerprint}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_bits_on_a_gpu() -> None:
    chosen = torch.randint(40, (64,), generator=torch.Generator().manual_seed(0))
    source = Images.of(made(), augment=PadCropFlip(2))
    for ours, theirs in zip(source.batch(chosen, 5), source.to("cuda").batch(chosen, 5), strict=True):
        assert theirs.device.type == "cuda" and torch.equal(ours, theirs.cpu())


# --- what cannot be used


def test_unusable_tensors() -> None:
    with pytest.raises(InputError, match="the data have 3 inputs and 2 targets"):
        Pair(torch.eye(3), torch.arange(2))
    with pytest.raises(InputError, match="the data have 0 inputs"):
        Pair(torch.zeros(0, 3), torch.zeros(0))
    with pytest.raises(InputError, match="the training inputs holds NaN"):
        Pair(torch.tensor([[1.0], [torch.nan]]), torch.arange(2))


def test_unusable_images() -> None:
    with pytest.raises(InputError, match=r"normalize='norm' does not treat every image alike"):
        Images.of(made(), normalize="norm")
    with pytest.raises(InputError, match="like=made has 1 channels and made has 3"):
        Images.of(made(), like=made(channels=1))


def test_labels_out_of_range() -> None:
    check_classes(torch.tensor([0, 9]), 10)
    check_classes(torch.tensor([0.5]), 1)
    check_classes(torch.tensor([[70]]), 10)  # no classes: left to the loss
    with pytest.raises(InputError, match="example 1 has label 10 and the network has 10 outputs; labels run"):
        check_classes(torch.tensor([0, 10, 11]), 10)
    with pytest.raises(InputError, match="example 2 has label -1"):
        check_classes(torch.tensor([0, 3, -1]), 10)
