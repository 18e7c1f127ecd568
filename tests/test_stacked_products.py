"""Products of stacks of matrices: by either library the right numbers, and which library is asked."""

from math import nan

import pytest
import torch
from torch.nn import functional as F

from epoch0.networks import mlp
from epoch0.prune import apply, keep, random
from epoch0.seeds import generator
from epoch0.train import _chain_products
from epoch0.train._chain_products import SMALL, affine, affine_of_inputs, masked_product, product
from epoch0.train.stacked import Stacked

# (networks, rows, inner, columns)
SHAPES = [
    (3, 7, 5, 4),
    (1, 1, 6, 2),
    (2, 6, 1, 5),
    (2, 100, 100, 100),
    (2, 101, 100, 100),
    (4, 3, 2, 1),
    (5, 17, 33, 20),
]
LIBRARIES = pytest.mark.parametrize("openblas", [True, False], ids=["numpy", "torch"])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, openblas: bool) -> None:
    """One thread, on a machine that has those kernels or does not."""
    monkeypatch.setattr(_chain_products, "_has_small_kernels", lambda: openblas)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@LIBRARIES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.usefixtures("library")
def test_products_are_those_of_the_definition(shape: tuple[int, ...], dtype: torch.dtype, turned: bool) -> None:
    networks, rows, inner, columns = shape
    source = generator(1)

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(networks, *size, generator=source, dtype=torch.float64).to(dtype)

    left = drawn(inner, rows).transpose(1, 2) if turned else drawn(rows, inner)
    right, bias = drawn(inner, columns), drawn(1, columns)
    weight = torch.cat([drawn(columns, inner), drawn(columns, inner)])[networks:]  # part of a larger stack
    mask = (drawn(rows, columns) > 0).to(dtype)
    out = torch.full((networks, rows, columns), nan, dtype=dtype)
    room = torch.full((out.numel() + 3,), nan, dtype=dtype)
    works = [
        (product(left, right, out), out),
        (masked_product(left, right, None, out, room), out),
        (masked_product(left, right, mask, out, room), out),
        affine(left, weight, None, out, room),
        affine(left, weight, bias, out, room),
    ]
    for again in range(2):  # made ready once, done with whatever there is then
        with torch.no_grad():
            right.mul_(1 + again)
            weight.sub_(again)
        wide = torch.einsum("nri,nic->nrc", left.double(), right.double())
        turn = torch.einsum("nri,nci->nrc", left.double(), weight.double())
        tolerance = 1e-4 if dtype == torch.float32 else 1e-12
        for (work, found), expected in zip(works, [wide, wide, wide * mask, turn, turn + bias], strict=True):
            found.fill_(nan)
            work()
            torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biased", [False, True])
def test_the_first_layer_of_all_networks_is_one_product(
    shape: tuple[int, ...], dtype: torch.dtype, biased: bool
) -> None:
    networks, rows, inner, columns = shape
    source = generator(2)

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=source, dtype=torch.float64).to(dtype)

    weight, bias = drawn(networks + 2, columns, inner)[1:-1], drawn(networks + 2, 1, columns)[1:-1]
    work, found = affine_of_inputs(weight, bias if biased else None, weight.new_full((networks * rows * columns,), nan))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for given in (drawn(rows, inner), drawn(2 * rows, inner)[::2]):
        work(given)
        expected = torch.einsum("ri,nci->nrc", given.double(), weight.double()) + (bias.double() if biased else 0.0)
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_openblas_is_asked_on_one_thread_for_small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, kernels = 1, True
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(_chain_products, "_has_small_kernels", lambda: kernels)

    def asked(rows: int, inner: int, columns: int, device: str = "cpu") -> bool:
        left, right = torch.empty(2, rows, inner, device=device), torch.empty(2, inner, columns, device=device)
        return _chain_products._for_openblas(left, right)

    assert SMALL == 100**3
    assert asked(100, 100, 100) and not asked(100, 100, 101)
    assert not asked(1, 100, 100), "a row by a matrix"
    assert not asked(10, 10, 10, device="meta")
    threads = 2
    assert not asked(100, 100, 100)
    threads, kernels = 1, False
    assert not asked(100, 100, 100)


@LIBRARIES
@pytest.mark.usefixtures("library")
def test_a_pruned_stack_has_its_gradients_by_either_library(openblas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    matmul = _chain_products.np.matmul
    monkeypatch.setattr(_chain_products.np, "matmul", lambda *a, **k: calls.append(1) or matmul(*a, **k))
    nets = [apply(net, keep(random(net, seed=1), 0.5)) for net in (mlp([6, 20, 20, 3], "tanh", seed=i) for i in (0, 1))]
    x, y = torch.randn(30, 6, generator=generator(0)), torch.arange(30) % 3
    stack = Stacked.of(nets)
    stack.loss(F.cross_entropy)(stack(x), y).backward()
    # two layers behind the first: what comes out, the gradient of the weight, and that of what came in
    assert len(calls) == (6 if openblas else 0)
    for index, net in enumerate(nets):
        twin = net.double()
        F.cross_entropy(twin(x.double()), y).backward()
        for name, parameter in twin.named_parameters():
            own = stack.networks.get_parameter(name).grad
            assert own is not None and parameter.grad is not None
            torch.testing.assert_close(own[index].double(), parameter.grad, rtol=1e-4, atol=1e-6)


def test_overflow_is_no_warning() -> None:
    """A network that diverges is noticed by its loss; warnings are errors here."""
    nets = [mlp([3, 8, 8, 2], "relu", seed=i) for i in range(2)]
    with torch.no_grad():
        for part in nets[1].parameters():
            part.mul_(1e30)
    stack = Stacked.of(nets)
    total = stack.loss(F.cross_entropy)(stack(torch.ones(4, 3)), torch.zeros(4, dtype=torch.int64))
    assert stack.diverged.tolist() == [False, True] and bool(total.isfinite())
    total.backward()
    first = stack.networks.get_parameter("0.weight").grad
    assert first is not None and bool(first[0].isfinite().all())
