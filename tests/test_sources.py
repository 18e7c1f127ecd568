"""Sources: batches are the data to the last bit, wherever they lie, and what is wrong with them is told in words."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epoch0.data import DataSet, load
from epoch0.errors import InputError
from epoch0.train import sources
from epoch0.train.augmentation import PadCropFlip
from epoch0.train.sources import Images, Source, Tensors, batches, check_classes, room, size


def made(seed: int = 0, count: int = 40, channels: int = 3, split: str = "train") -> DataSet:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, channels, 6, 5), dtype=np.uint8) // np.uint8(1 + seed)
    return DataSet("made", split, images, random.integers(0, 4, count), tuple("abcd"))


CHOSEN = st.lists(st.integers(0, 39), max_size=60)


@settings(deadline=None)
@given(CHOSEN, st.integers(0, 2**62), st.integers(1, 4), st.booleans(), st.sampled_from(["standard", "unit"]))
def test_images_are_the_inputs_of_the_data_set_to_the_bit(
    numbers: list[int], seed: int, channels: int, last: bool, normalize: str
) -> None:
    train, test = made(0, channels=channels), made(1, channels=channels, split="test")
    chosen = torch.tensor(numbers, dtype=torch.int64)
    like = train if normalize == "standard" else None
    whole = torch.from_numpy(test.inputs(normalize, flatten=False, like=like))
    x, y = Images.of(test, normalize=normalize, like=like, channels_last=last).batch(chosen, seed)
    assert x.dtype == torch.float32 and torch.equal(x, whole[chosen])
    assert torch.equal(y, torch.from_numpy(test.labels)[chosen]) and y.dtype == torch.int64
    assert x.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    rows = Images.of(test, normalize=normalize, like=like, flatten=True)
    flat, _ = rows.batch(chosen, seed)
    assert rows.classes == 4 and rows.shape == flat.shape[1:]
    assert torch.equal(flat, torch.from_numpy(test.inputs(normalize, like=like))[chosen])


@settings(deadline=None)
@given(CHOSEN, st.integers(0, 2**62), st.booleans())
def test_augmented_images_are_padded_black_then_scaled(numbers: list[int], seed: int, last: bool) -> None:
    train, chosen = made(), torch.tensor(numbers, dtype=torch.int64)
    augment = PadCropFlip(2)
    x, _ = Images.of(train, augment=augment, channels_last=last).batch(chosen, seed)
    pixels = augment(torch.from_numpy(train.images)[chosen], chosen, seed).numpy()
    mean, std = (rows.astype(np.float32).reshape(3, 1, 1) for rows in train.scaling())
    assert np.array_equal(x.numpy(), (pixels.astype(np.float32) - mean) / std)


@given(CHOSEN, st.integers(0, 2**62))
def test_tensors_are_what_was_given(numbers: list[int], seed: int) -> None:
    inputs, targets = torch.randn(40, 2, 3, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40)
    chosen = torch.tensor(numbers, dtype=torch.int64)
    x, y = Tensors(inputs, targets).batch(chosen, seed)
    assert torch.equal(x, inputs[chosen]) and torch.equal(y, targets[chosen])
    augmented, _ = Tensors(inputs, targets, PadCropFlip(1)).batch(chosen, seed)
    assert torch.equal(augmented, PadCropFlip(1)(inputs[chosen], chosen, seed))


def test_both_are_sources_and_a_batch_does_not_alias_the_data() -> None:
    for source in (Images.of(made()), Tensors(torch.ones(4, 2), torch.ones(4))):
        assert isinstance(source, Source) and "fingerprint" not in vars(source)
        inputs, targets = source.batch(torch.arange(4), 0)
        again = inputs.clone()
        inputs.zero_(), targets.zero_()
        assert torch.equal(source.batch(torch.arange(4), 0)[0], again) and source.targets.any()


def test_what_is_no_source() -> None:
    assert not isinstance((torch.eye(2), torch.arange(2)), Source) and not isinstance(load("digits"), Source)


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
        Tensors(torch.eye(3), torch.arange(3)), Tensors(torch.eye(3), torch.tensor([0, 2, 1])),
        Tensors(torch.eye(3) * 2, torch.arange(3)),
    ]  # fmt: skip
    assert len({source.fingerprint for source in sources}) == len(sources)
    same = [Images.of(made()), Images.of(made(), channels_last=True), Images.of(made()).to("cpu")]
    assert {source.fingerprint for source in same} == {sources[0].fingerprint}


def test_the_fingerprint_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Images.of(made())
    first = source.fingerprint
    monkeypatch.setattr(sources, "digest", lambda *_: pytest.fail("read again"))
    assert source.to("cpu").fingerprint == source.fingerprint == first


# --- where the data lie


def test_held_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Images.of(made())
    assert source.held == source.to("cpu").held == "3.9 kB on cpu"  # 40 x 90 bytes and 40 labels of 8
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20_000, 10**9))
    assert room(cuda, torch.zeros(10_000, dtype=torch.uint8)) == (True, "10.0 kB on cuda:0")
    fits, words = room(cuda, torch.zeros(10_001, dtype=torch.uint8))
    assert not fits
    assert words == "10.0 kB on the host, each batch copied to cuda:0: of 20.0 kB free there, data may take 50%"


def test_sizes_in_words() -> None:
    assert [size(n) for n in (0, 999, 1000, 153_600_000, 5 * 10**9)] == ["0 B", "999 B", "1.0 kB", "153.6 MB", "5.0 GB"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_bits_on_a_gpu() -> None:
    chosen = torch.randint(40, (64,), generator=torch.Generator().manual_seed(0))
    for last in (False, True):
        source = Images.of(made(), augment=PadCropFlip(2), channels_last=last)
        moved = source.to("cuda")
        assert moved.held == "3.9 kB on cuda:0" and moved.images.device.type == "cuda"
        for ours, theirs in zip(source.batch(chosen, 5), moved.batch(chosen, 5), strict=True):
            assert theirs.device.type == "cuda" and torch.equal(ours, theirs.cpu())


# --- drawing batches


class Ahead(Tensors):
    """A source that notes what is begun, finished and dropped."""

    ahead = 2
    notes: list[str]

    def begin(self, chosen: torch.Tensor, seed: int) -> object:
        self.notes.append(f"begin {seed}")
        notes, source = self.notes, self

        class Waiting:
            def __call__(self) -> tuple[torch.Tensor, torch.Tensor]:
                notes.append(f"give {seed}")
                return source.batch(chosen, seed)

            def drop(self) -> None:
                notes.append(f"drop {seed}")

        return Waiting()


def test_batches_are_begun_ahead_and_dropped_when_nobody_wants_them() -> None:
    plan = [(torch.tensor([i]), i) for i in range(5)]
    plain = Tensors(torch.arange(5.0)[:, None], torch.arange(5))
    source = Ahead(plain.inputs, plain.targets)
    object.__setattr__(source, "notes", [])
    for (x, y), (x_plain, y_plain) in zip(batches(source, plan), batches(plain, plan), strict=True):
        assert torch.equal(x, x_plain) and torch.equal(y, y_plain)
    assert source.notes == ["begin 0", "begin 1", "begin 2", "give 0", "begin 3", "give 1", "begin 4", "give 2",
                            "give 3", "give 4"]  # fmt: skip
    source.notes.clear()
    stream = batches(source, plan)
    next(stream)
    stream.close()
    assert source.notes == ["begin 0", "begin 1", "begin 2", "give 0", "drop 1", "drop 2"]


# --- what cannot be used


def test_unusable_tensors() -> None:
    with pytest.raises(InputError, match="the data have 3 inputs and 2 targets"):
        Tensors(torch.eye(3), torch.arange(2))
    with pytest.raises(InputError, match="the data have 0 inputs"):
        Tensors(torch.zeros(0, 3), torch.zeros(0))
    with pytest.raises(InputError, match="the training inputs holds 1 NaN or infinite"):
        Tensors(torch.tensor([[1.0], [torch.nan]]), torch.arange(2))


def test_unusable_images() -> None:
    with pytest.raises(InputError, match="flatten=True makes rows"):
        Images.of(made(), flatten=True, channels_last=True)
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
