"""Sparse models in files: the same outputs to the bit in a fresh model, and no other model's."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.initialization.files import save_tensors
from epoch0.prune._apply import apply
from epoch0.prune._csr import CsrConv, CsrLinear
from epoch0.prune._csr_file import LAYOUT, load_csr
from epoch0.prune._keep import keep
from epoch0.prune._masks import Masks
from epoch0.prune._to_csr import to_csr
from epoch0.prune.baselines import random


class Net(nn.Module):
    """Convolutions, norms, a shared module, tied weights, attention, recurrence, and buffers of its own."""

    def __init__(self, stride: int = 1, width: int = 64, slope: float = 0.1, classes: int = 12) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=stride), nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2, padding="same", padding_mode="circular", bias=False)
        self.act, self.drop = nn.LeakyReLU(slope), nn.Dropout(0.5)
        self.big, self.twice = nn.Linear(8 * 16, width), nn.Linear(width, width)
        self.also = self.twice
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.past = nn.LSTM(width, width, batch_first=True)
        self.last, self.words = nn.Linear(width, classes, bias=False), nn.Embedding(classes, width)
        self.last.weight = self.words.weight
        self.scale: Tensor
        self.register_buffer("scale", torch.full((), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.conv(x)))
        h = nn.functional.adaptive_avg_pool2d(self.act(self.grouped(h)), 4).flatten(1)
        h = self.act(self.also(self.act(self.twice(self.drop(self.act(self.big(h)))))))[:, None] * self.scale
        h = h + self.words.weight[None]
        h = h + self.attention(h, h, h)[0]
        return self.last(self.past(h)[0][:, -1])


def build(seed: int, **settings: float) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Net(**settings)  # type: ignore[arg-type]
        net.norm.running_mean.normal_()
        net.norm.running_var.uniform_(0.5, 2)
        net.norm.num_batches_tracked.add_(seed)
        net.scale.add_(seed)
    return net


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=dtype)


def pruned(seed: int = 0, **settings: float) -> Net:
    return apply(build(seed, **settings), keep(random(build(seed, **settings), seed=seed), 0.9))


X = noise(4, 3, 8, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_come_back_to_the_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    x = X.to(dtype)
    export = to_csr(pruned().to(dtype), x, only_faster=False)
    assert sum(row.sparse for row in export.layers) == 5
    path = export.save(tmp_path / "sparse.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["sparse.safetensors"]
    assert path.stat().st_size < export.csr_bytes + 10_000
    other = pruned(3)
    for fresh in (build(2), other, other.train().double(), build(4).requires_grad_(False), nn.DataParallel(build(5))):
        before = copy.deepcopy(fresh.state_dict())
        found = load_csr(fresh, path)
        with torch.no_grad():
            assert torch.equal(found(x), export.model(x))
        assert all(torch.equal(value, before[key]) for key, value in fresh.state_dict().items())
        assert not any(module.training for module in found.modules())
        assert found.also is found.twice and found.last.matrix.values.dtype == dtype
        stored, ours = export.model.state_dict(), found.state_dict()
        assert list(stored) == list(ours) and all(torch.equal(stored[key], ours[key]) for key in stored)


def test_what_the_file_says(tmp_path: Path) -> None:
    export = to_csr(pruned(), X, only_faster=False)
    path = export.save(tmp_path / "sparse.safetensors")
    with safe_open(str(path), framework="pt") as file:
        header, names = file.metadata(), set(file.keys())
    assert header["format"] == LAYOUT == "epoch0 sparse model 1"
    layers = json.loads(header["layers"])
    assert layers["grouped"]["kind"] == "Conv2d" and layers["grouped"]["shape"] == [8, 4, 3, 3]
    assert layers["big"] == {"kind": "Linear", "shape": [64, 128]}
    assert {"big.matrix.row_starts", "big.matrix.columns", "big.matrix.values", "big.bias", "words.weight"} <= names
    # a module in two places is stored once; a dense weight tied to a sparse layer's stays for the dense module
    assert not {name for name in names if name.startswith("also.")} and "also.bias" in json.loads(header["same"])
    assert "big.weight" not in names


def test_a_model_that_is_one_layer(tmp_path: Path) -> None:
    def half(layer: nn.Module) -> nn.Module:
        return apply(
            layer, {"weight": torch.rand(layer.weight.shape, generator=torch.Generator().manual_seed(1)) < 0.5}
        )

    for make, x in (
        (lambda: nn.Linear(7, 5, bias=False), noise(3, 7)),
        (lambda: nn.Conv1d(4, 6, 3, groups=2, stride=2), noise(3, 4, 9)),
    ):
        export = to_csr(half(make()), x, only_faster=False)
        found = load_csr(make(), export.save(tmp_path / "one.safetensors"))
        assert isinstance(found, CsrLinear | CsrConv) and torch.equal(found(x), export.model(x))


def test_empty_layers_and_nothing_sparse(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    none = apply(copy.deepcopy(net), {"0.weight": torch.zeros(5, 6).bool(), "1.weight": torch.ones(4, 5).bool()})
    export = to_csr(none, noise(2, 6), only_faster=False)
    found = load_csr(net, export.save(tmp_path / "a.safetensors"))
    assert len(found[0].matrix.values) == 0 and torch.equal(found(noise(2, 6)), export.model(noise(2, 6)))
    slow = to_csr(apply(copy.deepcopy(net), {"0.weight": torch.eye(5, 6).bool()}))  # 5 x 6 never pays
    assert not any(row.sparse for row in slow.layers)
    dense = load_csr(net, slow.save(tmp_path / "b.safetensors"))
    assert torch.equal(dense(noise(2, 6)), slow.model(noise(2, 6))) and isinstance(dense[0], nn.Linear)


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "stride": (lambda: build(1, stride=2), r"this Net: 'conv' has stride \[1, 2, 2\]|'conv' has stride \[2, 2\]"),
    "width": (lambda: build(1, width=32), r"'big' has weights of \(32, 128\), in the file \(64, 128\)"),
    "slope": (lambda: build(1, slope=0.2), r"'act' has negative_slope 0\.2, in the file 0\.1\.$"),
    "classes": (lambda: build(1, classes=9), r"'last' has weights of \(9, 64\), in the file \(12, 64\)"),
    "foreign": (lambda: nn.Sequential(nn.Linear(4, 4)), r"no layer 'conv', a Conv2d of \(8, 3, 3, 3\).* and 2 more\.$"),
    "sparse": (lambda: to_csr(pruned(), X, only_faster=False).model, "'conv' is sparse already; a dense model is"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures(tmp_path: Path, name: str) -> None:
    path = to_csr(pruned(), X, only_faster=False).save(tmp_path / "s.safetensors")
    make, words = OTHERS[name]
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(InputError, match=words):
        load_csr(model, path)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_dense_parts_are_compared_too(tmp_path: Path) -> None:
    def net(last: nn.Module, norm: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), norm, last)

    masks = Masks({"0.weight": torch.eye(5, 6).bool()})
    export = to_csr(apply(net(nn.Linear(5, 5), nn.LayerNorm(5)), masks), noise(3, 6), only_faster=False)
    path = export.save(tmp_path / "s.safetensors")
    for last, norm, words in (
        (nn.Linear(5, 5, bias=False), nn.LayerNorm(5), r"it has no '2\.bias'"),
        (nn.Linear(5, 5), nn.LayerNorm(5, eps=1e-3), r"'1' has eps 0\.001, in the file 1e-05"),
        (nn.Linear(5, 5), nn.BatchNorm1d(5), r"'1' has kind BatchNorm1d, in the file LayerNorm"),
        (nn.Linear(5, 4), nn.LayerNorm(5), r"'2' has out_features 4, in the file 5"),
        (nn.Sequential(nn.Linear(5, 5)), nn.LayerNorm(5), r"'2' has kind Sequential, .*the file has no module '2\.0'"),
    ):
        with pytest.raises(InputError, match=words):
            load_csr(net(last, norm), path)
    tied = nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 5))
    tied[0].bias = tied[2].bias
    loose = apply(copy.deepcopy(tied), {"0.weight": torch.eye(5).bool()})
    loose[2].bias = nn.Parameter(torch.ones(5))
    mine = to_csr(loose, noise(3, 5), only_faster=False).save(tmp_path / "l.safetensors")
    assert torch.equal(load_csr(tied, mine)[2].bias, torch.ones(5))  # the sparse layer has its own bias
    tied[1].bias = tied[2].bias
    with pytest.raises(InputError, match=r"'2\.bias' and '1\.bias' are one tensor here and two in the file"):
        load_csr(tied, mine)


def test_files_that_are_not_right(tmp_path: Path) -> None:
    path = to_csr(pruned(), X, only_faster=False).save(tmp_path / "s.safetensors")
    content = path.read_bytes()
    for length in (0, 9, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match="cut short"):
            load_csr(build(1), path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="checksum"):
        load_csr(build(1), path)
    with pytest.raises(InputError, match="missing"):
        load_csr(build(1), tmp_path / "none.safetensors")
    for foreign in (keep(random(build(1)), 0.5), random(build(1))):
        with pytest.raises(InputError, match=r"holds no sparse weights; CsrExport\.save writes those"):
            load_csr(build(1), foreign.save(tmp_path / "f.safetensors"))
    save_file(build(1).past.state_dict(), path)
    with pytest.raises(InputError, match="holds no sparse weights"):
        load_csr(build(1), path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("columns", 6), ("columns", -1), ("row_starts", 99), ("values", None)],
)
def test_rows_that_are_no_rows(tmp_path: Path, key: str, value: int | None) -> None:
    net = apply(nn.Sequential(nn.Linear(6, 5)), {"0.weight": torch.eye(5, 6).bool()})
    path = to_csr(net, noise(2, 6), only_faster=False).save(tmp_path / "s.safetensors")
    tensors = load_file(path)
    with safe_open(str(path), framework="pt") as file:
        words = {name: word for name, word in file.metadata().items() if name not in ("order", "sha256", "format")}
    changed = tensors[f"0.matrix.{key}"]
    if value is None:
        tensors[f"0.matrix.{key}"] = changed[:-1]
    else:
        changed[1] = value
    forged = save_tensors(path, "sparse weights", LAYOUT, tensors, words)  # the checksum is right
    with pytest.raises(InputError, match="damaged"):
        load_csr(nn.Sequential(nn.Linear(6, 5)), forged)


def test_models_that_cannot_take_or_give(tmp_path: Path) -> None:
    net = apply(nn.Sequential(nn.Linear(6, 5)), {"0.weight": torch.eye(5, 6).bool()})
    export = to_csr(net, noise(2, 6), only_faster=False)
    path = export.save(tmp_path / "s.safetensors")
    with pytest.raises(InputError, match=r"'0\.weight' is lazy"):
        load_csr(nn.Sequential(nn.LazyLinear(5)), path)
    with pytest.raises(InputError, match="meta device"):
        load_csr(nn.Sequential(nn.Linear(6, 5, device="meta")), path)
    for bad in ("s.pt", "none/s.safetensors"):
        with pytest.raises(InputError, match="sparse weights"):
            export.save(tmp_path / bad)

    class Told(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"a": 1}

        def set_extra_state(self, state: dict[str, int]) -> None:
            assert state

    both = apply(nn.Sequential(nn.Linear(6, 5), Told(5, 2)), {"0.weight": torch.eye(5, 6).bool()})
    with pytest.raises(InputError, match=r"state '1\._extra_state' of the model is a dict"):
        to_csr(both, noise(2, 6), only_faster=False).save(tmp_path / "t.safetensors")
