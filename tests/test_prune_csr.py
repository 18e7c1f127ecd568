"""Really sparse layers: the same outputs as the dense ones, and none exported that is not faster unless asked."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

from epoch0.errors import InputError
from epoch0.prune import _to_csr
from epoch0.prune._apply import apply, bake
from epoch0.prune._csr import CsrConv, CsrLinear, CsrMatrix
from epoch0.prune._keep import keep
from epoch0.prune._to_csr import to_csr
from epoch0.prune.baselines import random


def sparse(layer: nn.Module, density: float, seed: int = 0) -> nn.Module:
    with torch.no_grad():
        source = torch.Generator().manual_seed(seed)
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=source))
        layer.weight.mul_(torch.rand(layer.weight.shape, generator=source) < density)
    return layer


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (40,), (2, 3, 40), (1, 1, 40), (0, 40)])
@pytest.mark.parametrize("density", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(dtype: torch.dtype, shape: tuple[int, ...], density: float, bias: bool) -> None:
    dense = sparse(nn.Linear(40, 24, bias=bias, dtype=dtype), density)
    x = noise(*shape, dtype=dtype)
    expected, found = dense(x), CsrLinear(dense)(x)
    assert found.shape == expected.shape and found.dtype == dtype and found.is_contiguous()
    assert torch.allclose(found, expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-13)


CONVOLUTIONS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "plain": lambda: (nn.Conv2d(6, 8, 3), (2, 6, 9, 8)),
    "same": lambda: (nn.Conv2d(6, 8, 3, padding="same", bias=False), (3, 6, 9, 8)),
    "strided": lambda: (nn.Conv2d(6, 8, (3, 2), stride=(2, 3), padding=(1, 2)), (1, 6, 9, 8)),
    "dilated": lambda: (nn.Conv2d(6, 8, 3, dilation=2, padding=1), (2, 6, 9, 8)),
    "groups": lambda: (nn.Conv2d(6, 8, 3, groups=2), (2, 6, 9, 8)),
    "depthwise": lambda: (nn.Conv2d(6, 12, 3, groups=6, padding=1), (2, 6, 9, 8)),
    "circular": lambda: (nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular"), (2, 6, 9, 8)),
    "reflected": lambda: (nn.Conv2d(6, 8, 5, padding=2, padding_mode="reflect"), (2, 6, 9, 8)),
    "pointwise": lambda: (nn.Conv2d(6, 8, 1), (2, 6, 9, 8)),
    "pointwise strided": lambda: (nn.Conv2d(6, 8, 1, stride=2), (2, 6, 9, 8)),
    "no examples": lambda: (nn.Conv2d(6, 8, 3), (6, 9, 8)),
    "one dimension": lambda: (nn.Conv1d(6, 8, 3, padding=1, stride=2, dilation=2), (4, 6, 17)),
    "one dimension circular": lambda: (nn.Conv1d(6, 8, 3, padding=1, padding_mode="circular"), (6, 17)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("density", [0.0, 0.1])
def test_convolution(name: str, together: bool, density: float) -> None:
    layer, shape = CONVOLUTIONS[name]()
    dense, x = sparse(layer, density), noise(*shape)
    expected, found = dense(x), CsrConv(dense, together)(x)
    assert found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=1e-5)


def test_the_matrix_is_what_was_stored() -> None:
    weight = sparse(nn.Linear(50, 30), 0.1).weight
    matrix = CsrMatrix(weight)
    count = int(weight.count_nonzero())
    assert torch.equal(matrix.dense(), weight.detach()) and matrix.bytes == 8 * count + 4 * 31
    assert matrix.columns.dtype == matrix.row_starts.dtype == torch.int32
    file = io.BytesIO()
    torch.save(matrix.state_dict(), file)
    file.seek(0)
    other = CsrMatrix(sparse(nn.Linear(50, 30), 0.1).weight)
    other.load_state_dict(torch.load(file))
    assert torch.equal(copy.deepcopy(other).double().dense(), weight.detach().double())


def test_gradients_reach_the_input() -> None:
    dense = sparse(nn.Linear(20, 10, dtype=torch.float64), 0.3)
    conv = sparse(nn.Conv2d(3, 4, 3, dtype=torch.float64), 0.3)
    linear, image = (4, 20), (2, 3, 5, 5)
    pairs = [(dense, CsrLinear(dense), linear), (dense, CsrLinear(dense), (1, 20)), (conv, CsrConv(conv), image),
             (conv, CsrConv(conv, True), image)]  # fmt: skip
    for plain, ours, shape in pairs:
        x = noise(*shape, dtype=torch.float64)
        gradients = []
        for layer in (plain, ours):
            leaf = x.clone().requires_grad_()
            layer(leaf).square().sum().backward()
            gradients.append(leaf.grad)
        assert torch.allclose(*gradients) and not list(ours.parameters())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.big, self.tied, self.small = nn.Linear(8 * 64, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 4)
        self.past, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.up = nn.ConvTranspose1d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.conv(x))).flatten(1)
        h = self.small(torch.relu(self.tied(torch.relu(self.tied(torch.relu(self.big(h)))))))
        h = nn.functional.linear(h, self.past.weight, self.past.bias)[:, None]
        return self.up(self.attention(h, h, h)[0]).flatten(1)


def pruned(sparsity: float = 0.98) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Net()
    return apply(model, keep(random(model), sparsity, floor=1))


def test_export() -> None:
    model, x = pruned(), noise(16, 3, 8, 8)
    before = f"{model}{[(n, p._version) for n, p in model.named_parameters()]}"
    state = copy.deepcopy(model.state_dict())
    export = to_csr(model, x)
    rows = {row.name: row for row in export.layers}
    assert list(rows) == ["conv", "big", "tied", "small", "past", "attention.out_proj", "up"]
    # 1024 x 1024 at 2 %: several times as fast on any machine
    assert rows["tied"].sparse and rows["tied"].speedup is not None and rows["tied"].speedup > 1
    assert isinstance(export.model.tied, CsrLinear) and rows["tied"].status == "sparse"
    assert rows["tied"].csr_bytes is not None and rows["tied"].csr_bytes < 0.05 * rows["tied"].dense_bytes
    for row in export.layers:
        assert not row.sparse or row.speedup is None or row.speedup > 1
        assert row.sparse == isinstance(export.model.get_submodule(row.name), CsrLinear | CsrConv)
    assert rows["past"].status == "dense: it is not called as a module"
    assert rows["attention.out_proj"].status.startswith("dense: a NonDynamically")
    assert rows["up"].status == "dense: a ConvTranspose1d has no sparse form here"
    with torch.no_grad():
        assert torch.allclose(export.model(x), model.eval()(x), atol=1e-5)
    assert export.largest_difference is not None and export.largest_difference < 1e-5
    assert export.csr_bytes < 0.3 * export.dense_bytes and export.speedup is not None
    assert all(torch.equal(model.state_dict()[key], value) for key, value in state.items())
    assert f"{model.train()}{[(n, p._version) for n, p in model.named_parameters()]}" == before
    assert "layers sparse" in export.summary and "tied" in str(export)
    frame = export.to_pandas()
    assert frame.loc[frame["name"] == "tied", "density"].item() == rows["tied"].density
    assert export.to_dict()["layers"][2]["name"] == "tied" and "model" not in export.to_dict()


def test_slower_layers_stay_dense_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = pruned(), noise(2, 3, 8, 8)
    monkeypatch.setattr(_to_csr, "_race", lambda one, other, device: (1.0, 0.96))
    export = to_csr(model, x)
    assert not any(row.sparse for row in export.layers)
    assert {row.status for row in export.layers if row.csr_seconds} == {"dense: sparse is not faster"}
    asked = to_csr(model, x, only_faster=False)
    rows = {row.name: row for row in asked.layers}
    assert all(rows[name].sparse for name in ("conv", "big", "tied", "small"))
    assert rows["tied"].status == "sparse as asked, though not faster"
    assert isinstance(asked.model.conv, CsrConv)
    with torch.no_grad():
        assert torch.allclose(asked.model(x), model.eval()(x), atol=1e-5)


def test_without_a_batch() -> None:
    export = to_csr(pruned())
    rows = {row.name: row for row in export.layers}
    assert rows["conv"].status == "dense: no batch to time it on; give x" and rows["tied"].sparse
    assert rows["tied"].input_shape == (32, 1024) and export.speedup is None and export.largest_difference is None


def test_baked_and_whole_models() -> None:
    layer = sparse(nn.Linear(1024, 1024), 0.01)
    export, x = to_csr(layer, noise(32, 1024)), noise(32, 1024)
    assert isinstance(export.model, CsrLinear) and torch.allclose(export.model(x), layer(x), atol=1e-5)
    model = bake(pruned())
    assert {row.name for row in to_csr(model, noise(8, 3, 8, 8)).layers if row.sparse} >= {"tied"}


def test_a_module_in_two_places_stays_one() -> None:
    shared = sparse(nn.Linear(512, 512), 0.01)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    export = to_csr(model, noise(32, 512), only_faster=False)
    assert export.model[0] is export.model[2] and isinstance(export.model[0], CsrLinear) and len(export.layers) == 1
    assert torch.allclose(export.model(noise(32, 512)), model(noise(32, 512)), atol=1e-4)


def test_a_model_that_counts_and_draws_is_left_in_peace() -> None:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x + 0.1 * torch.randn_like(x))

    model = nn.Sequential(sparse(nn.Linear(20, 20), 0.1), sparse(Counting(20, 4), 0.5))
    before = torch.get_rng_state()
    export = to_csr(model, noise(3, 20), only_faster=False)
    assert torch.equal(torch.get_rng_state(), before) and model[1].calls == export.model[1].calls == 0


def test_what_cannot_be_exported() -> None:
    with pytest.raises(InputError, match="no linear layer or convolution with zeros in it: prune it first"):
        to_csr(nn.Sequential(nn.Linear(4, 4)))
    with pytest.raises(InputError, match=r"does not take x of shape \(2, 5\)"):
        to_csr(apply(nn.Linear(4, 4), {"weight": torch.eye(4).bool()}), noise(2, 5))
    half = apply(nn.Linear(4, 4, dtype=torch.bfloat16), {"weight": torch.eye(4).bool()})
    with pytest.raises(InputError, match="bfloat16"):
        to_csr(half)
    masked = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    torch_prune.random_unstructured(masked[0], "weight", 0.5)
    masked(noise(2, 8))
    with pytest.raises(InputError, match=r"cannot be copied.*bake\(model\) first"):
        to_csr(masked)


def test_under_autocast() -> None:
    linear, conv = sparse(nn.Linear(40, 24), 0.2), sparse(nn.Conv2d(3, 4, 3), 0.2)
    for plain, ours, shape in ((linear, CsrLinear(linear), (5, 40)), (conv, CsrConv(conv), (2, 3, 5, 5))):
        x = noise(*shape)
        with torch.autocast("cpu", torch.bfloat16):
            found = ours(x)
            again = ours(x.bfloat16())
        assert found.dtype == torch.float32 and torch.allclose(found, plain(x), atol=1e-5)
        assert torch.allclose(again, plain(x.bfloat16().float()), atol=1e-5)
