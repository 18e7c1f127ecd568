"""Trajectory regularization: against the loss written out, in every kind of loop; state; replacing batch norms."""

import copy
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.measure.length import trajectory_length
from epoch0.networks import resnet
from epoch0.train import Stacked, raghu, train
from epoch0.train.raghu import (
    TrajectoryRegularization,
    _Regularized,
    mean_segment,
    penalty,
    replace_batch_norm,
)
from length_models import chord_lengths

DOUBLE = torch.float64


def data(examples: int = 12, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, 6, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return x, torch.arange(examples) % 3


def net(scale: float = 0.3, seed: int = 0, dtype: torch.dtype = torch.float32, inplace: bool = False) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = nn.Sequential(
            nn.Linear(6, 8), TrajectoryRegularization(scale), nn.ReLU(inplace=inplace), nn.Linear(8, 5),
            TrajectoryRegularization(scale), nn.Tanh(), nn.Linear(5, 3),
        ).to(dtype)  # fmt: skip
    with torch.no_grad():
        made[1].multiplier.fill_(1.3)
        made[4].multiplier.fill_(0.8)
    return made


def written_out(model: nn.Sequential, x: Tensor, y: Tensor, originals: list[float]) -> tuple[Tensor, Tensor]:
    """Loss and penalty as sums over pairs of neighbours; the layers themselves are not called."""
    added, rest = torch.zeros((), dtype=x.dtype), list(originals)
    for layer in model:
        if isinstance(layer, TrajectoryRegularization):
            steps = [(a - b).square().sum().sqrt() for a, b in zip(x[1:], x[:-1], strict=True)]
            added = added + layer.scale * layer.multiplier * sum(steps) / len(steps) / rest.pop(0)
            x = layer.multiplier * x
        else:
            x = layer(x)
    return F.cross_entropy(x, y), added


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def begin(model: nn.Module, dtype: torch.dtype = torch.float32) -> list[float]:
    """Original lengths set by other data than those of the test, so that no ratio is 1."""
    F.cross_entropy(model(data(9, seed=5, dtype=dtype)[0]), torch.arange(9) % 3).backward()
    model.zero_grad()
    return [float(layer.original_segment) for layer in model if isinstance(layer, TrajectoryRegularization)]


def check_same(found: dict[str, Tensor], expected: dict[str, Tensor], rtol: float = 1e-5) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=rtol, atol=rtol * (value.abs().max().item() + 1e-6))


def test_length_is_that_of_the_polyline_through_the_batch() -> None:
    x, _ = data(8, dtype=DOUBLE)
    layer = nn.Linear(6, 5).double()
    model = nn.Sequential(layer, TrajectoryRegularization().double())
    model(x)
    twin = trajectory_length(model, e0.Polyline(x), layers=["0"], points=7 * 4)
    assert float(model[1].segment) * 7 == pytest.approx(float(twin.lengths[1]), rel=1e-12)
    chords = chord_lengths(model, e0.Polyline(x), points=7, layers=["0"])
    assert float(model[1].segment) * 7 == pytest.approx(float(chords[1]), rel=1e-12)
    assert float(model[1].original_segment) == float(model[1].segment)


@pytest.mark.parametrize("inplace", [False, True])
def test_gradients_are_those_of_the_loss_with_the_penalty_written_out(inplace: bool) -> None:
    model, (x, y) = net(dtype=DOUBLE, inplace=inplace), data(dtype=DOUBLE)
    originals = begin(model, DOUBLE)
    twin = copy.deepcopy(model)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    plain, added = written_out(twin, x, y, originals)
    (plain + added).backward()
    assert loss.item() == pytest.approx(plain.item(), rel=1e-12)
    assert penalty(model).item() == pytest.approx(added.item(), rel=1e-12) and added.item() > 0.3
    check_same(gradients(model), gradients(twin), rtol=1e-10)
    # without the penalty they are others, so the agreement is no accident
    alone = torch.autograd.grad(written_out(twin, x, y, originals)[0], twin[0].weight)[0]
    assert float((alone - model[0].weight.grad).norm()) > 0.05 * float(alone.norm())


def test_gradients_against_differences() -> None:
    model, (x, y) = net(dtype=DOUBLE), data(dtype=DOUBLE)
    begin(model, DOUBLE)
    F.cross_entropy(model(x), y).backward()
    found = gradients(model)

    def total() -> float:
        return F.cross_entropy(model(x), y).item() + penalty(model).item()

    for name, parameter in model.named_parameters():
        flat, by_hand = parameter.detach().view(-1), []
        for place in range(flat.numel()):
            kept, values = flat[place].item(), []
            for step in (1e-6, -1e-6):
                flat[place] = kept + step
                values.append(total())
            flat[place] = kept
            by_hand.append((values[0] - values[1]) / 2e-6)
        np.testing.assert_allclose(found[name].flatten().numpy(), by_hand, rtol=1e-5, atol=1e-8)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch, of its own code
def test_gradcheck_of_the_layer_and_of_the_length() -> None:
    layer = TrajectoryRegularization().double()
    assert all(buffer.dtype == DOUBLE for buffer in layer.buffers())
    x = torch.randn(4, 2, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(2)).requires_grad_()
    multiplier = torch.tensor(0.7, dtype=DOUBLE, requires_grad=True)
    layer(x)
    layer.scale = 0.0  # what is left is the function itself

    def scaled(x: Tensor, multiplier: Tensor) -> Tensor:
        return functional_call(layer, {"multiplier": multiplier}, (x,))

    assert torch.autograd.gradcheck(scaled, (x, multiplier), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(scaled, (x, multiplier))
    assert torch.autograd.gradcheck(mean_segment, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(mean_segment, (x,))


def test_images_in_channels_last_order() -> None:
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(memory_format=layout)
        x.requires_grad_()
        layer = TrajectoryRegularization(0.5)
        (layer(x) ** 2).sum().backward()
        found.append((x.grad, layer.multiplier.grad))
    torch.testing.assert_close(found[0], found[1])


def test_the_penalty_pulls_lambda_down_by_its_ratio() -> None:
    layer = TrajectoryRegularization(scale=0.25)
    x = torch.randn(5, 4)
    (0 * layer(x)).sum().backward()
    assert layer.multiplier.grad.item() == pytest.approx(0.25)  # the ratio is 1 on the first batch
    layer.zero_grad()
    (0 * layer(3 * x)).sum().backward()
    assert layer.multiplier.grad.item() == pytest.approx(0.75)


def test_equal_examples_have_a_gradient_of_zero_and_not_nan() -> None:
    layer = TrajectoryRegularization()
    layer(torch.randn(4, 3))
    x = torch.ones(4, 3, requires_grad=True)
    (0 * layer(x)).sum().backward()
    assert torch.equal(x.grad, torch.zeros(4, 3)) and layer.penalty.item() == 0


def test_train_and_eval_compute_the_same_bits_and_eval_adds_nothing() -> None:
    model, (x, y) = net(), data()
    trained = model(x)
    model.eval()
    evaluated = model(x)
    assert torch.equal(trained, evaluated)
    F.cross_entropy(evaluated, y).backward()
    plain, _ = written_out(twin := net(), x, y, [1.0, 1.0])
    plain.backward()
    check_same(gradients(model), gradients(twin))
    with torch.no_grad():
        assert torch.equal(model.train()(x), trained) and torch.equal(model(x[:1]), model.eval()(x[:1]))


def test_nothing_is_set_without_gradients() -> None:
    model, (x, _) = net(), data()
    with torch.no_grad():
        model(torch.zeros(1, 6))
        model.eval()(x)
    assert model[1].original_segment.item() == 0 and penalty(model).item() == 0


def test_a_short_last_batch_counts_like_the_others() -> None:
    layer, x = TrajectoryRegularization(), torch.randn(400, 50, generator=torch.Generator().manual_seed(0))
    layer(x)
    layer(x[:20])
    assert layer.penalty.item() == pytest.approx(0.01, rel=0.1)


def test_state_comes_back_and_copies_are_independent() -> None:
    model, (x, y) = net(), data()
    begin(model)
    names = {"1.original_segment", "1.multiplier", "4.original_segment", "4.multiplier"}
    assert {name for name in model.state_dict() if name[0] in "14"} == names
    other = net(seed=1)
    other.load_state_dict(model.state_dict())
    for each in (model, other):
        each.zero_grad()
        F.cross_entropy(each(x), y).backward()
    check_same(gradients(other), gradients(model), rtol=0)
    assert penalty(other).item() == penalty(model).item() > 0
    twin = copy.deepcopy(model)
    twin(5 * x)
    assert penalty(twin).item() > 2 * penalty(model).item()


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    x, y = data(40)
    settings = {"batch_size": 8, "learning_rate": 0.1, "seed": 3, "optimizer": "adam"}
    whole, first, second = net(), net(), net()
    train(whole, (x, y), steps=12, **settings)
    train(first, (x, y), steps=5, checkpoint=tmp_path / "run", **settings)
    train(second, (x, y), steps=12, checkpoint=tmp_path / "run", **settings)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    assert whole[1].multiplier.item() != net()[1].multiplier.item()


def layers(model: nn.Module) -> list[TrajectoryRegularization]:
    return [part for part in model.modules() if isinstance(part, TrajectoryRegularization)]


def test_accumulated_gradients_are_means_once_the_scale_is_divided() -> None:
    model, parts = net(), [data(8, seed=seed) for seed in (1, 2, 3)]
    begin(model)
    twin = copy.deepcopy(model)
    expected: dict[str, Tensor] = {}
    for x, y in parts:
        twin.zero_grad()
        F.cross_entropy(twin(x), y).backward()
        expected = {name: expected.get(name, 0) + value / 3 for name, value in gradients(twin).items()}
    for layer in layers(model):
        layer.scale /= 3
    for x, y in parts:
        (F.cross_entropy(model(x), y) / 3).backward()
    check_same(gradients(model), expected)


def test_a_gradient_scaler_once_the_scale_is_multiplied() -> None:
    model, (x, y) = net(), data()
    begin(model)
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for layer in layers(model):
        layer.scale *= scaler.get_scale()
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaler.unscale_(optimizer)
    F.cross_entropy(twin(x), y).backward()
    check_same(gradients(model), gradients(twin))


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_count_the_penalty_once(reentrant: bool) -> None:
    model, (x, y) = net(), data()
    begin(model)
    twin = copy.deepcopy(model)
    hidden = checkpoint(model[:4], x.clone().requires_grad_(), use_reentrant=reentrant)
    F.cross_entropy(model[4:](hidden), y).backward()
    F.cross_entropy(twin(x), y).backward()
    check_same(gradients(model), gradients(twin))
    assert penalty(model).item() == pytest.approx(penalty(twin).item())


def test_first_batch_through_recomputed_activations_sets_the_original_length() -> None:
    model, x = net(), data()[0]
    twin = copy.deepcopy(model)
    checkpoint(model, x.clone().requires_grad_(), use_reentrant=True).square().sum().backward()
    twin(x).square().sum().backward()
    check_same(gradients(model), gradients(twin))
    assert torch.equal(model[4].original_segment, twin[4].original_segment)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, inside dynamo
@pytest.mark.filterwarnings("ignore:Guards may run slower")
@pytest.mark.parametrize("begun", [pytest.param(True, marks=pytest.mark.slow), False])
def test_compiled_whole_it_gives_the_same(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # dynamo cannot follow the type checker of the tests
    for name in ("forward", "setup_context", "backward"):
        written = getattr(_Regularized, name)
        monkeypatch.setattr(_Regularized, name, staticmethod(getattr(written, "__wrapped__", written)))
    for name in ("mean_segment", "_lengths", "_not_zero"):
        written = getattr(raghu, name)
        monkeypatch.setattr(raghu, name, getattr(written, "__wrapped__", written))
    model, (x, y) = net(), data()
    if begun:
        begin(model)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for factor in (1.0, 1.7):  # the second call finds the original length of the first
        model.zero_grad()
        twin.zero_grad()
        F.cross_entropy(compiled(factor * x), y).backward()
        F.cross_entropy(twin(factor * x), y).backward()
        check_same(gradients(model), gradients(twin))
        assert penalty(model).item() == pytest.approx(penalty(twin).item(), rel=1e-5)
    torch._dynamo.reset()


def test_functional_call_and_torch_func_grad() -> None:
    model, (x, y) = net(), data()
    begin(model)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}  # as for batch norm: what is changed is passed

    def loss(own: dict[str, Tensor], held: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(functional_call(model, (own, held), (x,)), y)

    found = grad(loss)(parameters, buffers)
    F.cross_entropy(model(x), y).backward()
    check_same(dict(found), gradients(model))


def test_many_networks_under_vmap_train_as_each_alone() -> None:
    models, (x, y) = [net(seed=seed) for seed in range(3)], data()
    stacked, buffers = stack_module_state(models)

    def outputs(own: dict[str, Tensor], held: dict[str, Tensor]) -> Tensor:
        return functional_call(models[0], (own, held), (x,))

    for _ in range(2):  # the original lengths are set by the first
        found = vmap(outputs)(stacked, buffers)
    sum(F.cross_entropy(one, y) for one in found).backward()
    for index, model in enumerate(models):
        F.cross_entropy(model(x), y).backward()
        check_same({name: value.grad[index] for name, value in stacked.items()}, gradients(model))
        assert buffers["4.original_segment"][index].item() == pytest.approx(model[4].original_segment.item(), rel=1e-6)


def test_a_stack_in_our_loop() -> None:
    models, (x, y) = [net(seed=seed) for seed in range(2)], data(24)
    stack = Stacked.of(models)
    settings = {"steps": 5, "batch_size": 8, "learning_rate": 0.1}
    train(stack, (x, y), loss=stack.loss(F.cross_entropy), **settings)
    for index, model in enumerate(models):
        train(model, (x, y), **settings)
        check_same(dict(stack.unstack(index).named_parameters()), dict(model.named_parameters()), rtol=1e-4)


def test_bfloat16_autocast() -> None:
    model, (x, y) = net(), data()
    begin(model)
    twin = copy.deepcopy(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
    loss.backward()
    F.cross_entropy(twin(x), y).backward()
    assert outputs.dtype == torch.bfloat16 and penalty(model).dtype == torch.float32
    for name, value in gradients(twin).items():
        assert float((gradients(model)[name] - value).norm()) <= 0.05 * float(value.norm()) + 1e-3, name


def _rank(rank: int, path: str, size: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}/meet", rank=rank, world_size=size)
    model = net()
    begin(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    x, y = data(8, seed=rank)
    F.cross_entropy(wrapped(x), y).backward()
    torch.save(gradients(model), f"{path}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_processes_average_their_penalties(tmp_path: Path) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.multiprocessing.spawn(partial(_rank, path=str(tmp_path), size=2), nprocs=2)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    check_same(found[0], found[1], rtol=0)
    expected: dict[str, Tensor] = {}
    for rank in range(2):
        model, (x, y) = net(), data(8, seed=rank)
        begin(model)
        F.cross_entropy(model(x), y).backward()
        expected = {name: expected.get(name, 0) + value / 2 for name, value in gradients(model).items()}
    check_same(found[0], expected)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.BatchNorm1d(4)
        self.parts = nn.ModuleList([nn.Linear(4, 4), self.one, nn.SyncBatchNorm(4), nn.BatchNorm3d(2, affine=False)])
        self.fast = nn.BatchNorm2d(3).double().eval()
        self.kept = nn.InstanceNorm2d(3)


def test_every_batch_norm_is_replaced_in_place() -> None:
    model = Shared()
    result = replace_batch_norm(model, scale=0.02)
    assert result.model is model and len(result.names) == 5
    assert result.names == ("one", "parts.1", "parts.2", "parts.3", "fast")
    assert str(result) == "5 batch norms replaced: one, parts.1, parts.2, parts.3, fast"
    made = [model.get_submodule(name) for name in result.names]
    assert all(type(part) is TrajectoryRegularization and part.scale == 0.02 for part in made)
    assert made[0] is made[1] and len({id(part) for part in made}) == 4
    assert list(dict(model.named_children())) == ["one", "parts", "fast", "kept"]
    assert not model.fast.training and model.fast.multiplier.dtype == DOUBLE and model.one.training
    assert type(model.kept) is nn.InstanceNorm2d


def test_a_residual_network_trains_on_the_penalties_in_five_lines() -> None:
    network = resnet(8, width=1, stable=False, classes=3, activation="relu", seed=0)
    replaced = replace_batch_norm(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    x, y = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    before = [layer.multiplier.item() for layer in network.modules() if isinstance(layer, TrajectoryRegularization)]
    F.cross_entropy(network(x), y).backward()
    optimizer.step()
    after = [layer.multiplier.item() for layer in network.modules() if isinstance(layer, TrajectoryRegularization)]
    assert len(replaced.names) == len(before) == 9 and all(a != b for a, b in zip(before, after, strict=True))
    assert penalty(network).item() == pytest.approx(0.09, rel=1e-5)


def test_compiled_and_bare_batch_norms() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    compiled = torch.compile(model, backend="eager")
    assert replace_batch_norm(compiled).model is compiled and type(model[1]) is TrajectoryRegularization
    alone = replace_batch_norm(nn.BatchNorm1d(4))
    assert type(alone.model) is TrajectoryRegularization and "the model itself" in str(alone)


def test_models_that_cannot_be_replaced() -> None:
    with pytest.raises(InputError, match="no batch norm module"):
        replace_batch_norm(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))
    with pytest.raises(InputError, match="before wrapping"):
        replace_batch_norm(nn.DataParallel(nn.BatchNorm1d(4)))
    with pytest.raises(InputError, match="no TrajectoryRegularization"):
        penalty(nn.Linear(2, 2))


@pytest.mark.parametrize("x", [torch.randn(1, 4), torch.zeros(0, 4), torch.tensor(1.0)])
def test_a_minibatch_of_one_is_refused(x: Tensor) -> None:
    with pytest.raises(InputError, match="at least two"):
        TrajectoryRegularization()(x)


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_a_first_length_of_zero_or_nan_is_not_kept(value: float) -> None:
    layer = TrajectoryRegularization()
    layer(torch.full((4, 3), value))
    layer(torch.randn(4, 3))
    assert layer.original_segment.item() > 0


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf")])
def test_bad_numbers(number: float) -> None:
    with pytest.raises(InputError, match="scale="):
        TrajectoryRegularization(number)


def test_vectors_and_images() -> None:
    layer = TrajectoryRegularization()
    layer(torch.tensor([0.0, 3.0, 2.0]))
    assert layer.segment.item() == 2
    layer(torch.stack([torch.zeros(2, 2, 2), torch.ones(2, 2, 2)]))
    assert layer.segment.item() == pytest.approx(8**0.5)


def test_the_page_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "trajectory-regularization.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for block in blocks:
        exec(block, known)
    assert float(penalty(known["net"])) > 0.05 and (tmp_path / "lengths.png").stat().st_size > 10_000
    assert set(known["table"].kind) >= {"trajectory regularization", "convolution", "sum", "pooling", "linear"}
