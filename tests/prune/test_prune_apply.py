"""Masks on a model: pruned weights stay exactly zero through training, copies and checkpoints, and come off again."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils import prune as torch_prune

from epoch0.errors import InputError
from epoch0.prune.masks.apply import apply, bake, masks_of
from epoch0.prune.masks.masks import Masks, keep
from epoch0.prune.masks.places import Masked
from epoch0.prune.scores.scores import magnitude, random
from score_twins import prunable


class Net(nn.Module):
    """A convolution, a norm, a weight used twice, and one used past its module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.wide = nn.Linear(64, 12)
        self.tied = nn.Linear(12, 12)
        self.again = nn.Linear(12, 12)
        self.again.weight = self.tied.weight
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1)
        h = torch.tanh(self.again(torch.tanh(self.tied(torch.relu(self.wide(h))))))
        return F.linear(h, self.head.weight, self.head.bias)


def net(seed: int = 0) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net()


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(16, 1, 8, 8, generator=source), torch.randint(3, (16,), generator=source)


def some_masks(sparsity: float = 0.7, seed: int = 0) -> Masks:
    return keep(random(net(), seed), sparsity)


def pruned_entries(model: Net) -> list[Tensor]:
    """What the model computes with where it is pruned, and the gradients there."""
    masks = masks_of(model)
    found = []
    for name, mask in masks.items():
        module, _, attribute = name.rpartition(".")
        found.append(getattr(model.get_submodule(module), attribute)[~mask].detach())
        gradient = prunable(model)[name].grad
        if gradient is not None:
            found.append(gradient[~mask])
    return found


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("half", [False, True])
def test_pruned_weights_stay_zero(name: str, half: bool) -> None:
    model, (x, y) = net(), batch()
    optimizer = OPTIMIZERS[name](model.parameters())  # made before, and with momentum from dense steps
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    masks = some_masks()
    apply(model, masks)
    kept_before = {n: p.detach()[masks[n]].clone() for n, p in prunable(model).items()}
    start = F.cross_entropy(model(x), y).detach()
    for _ in range(100):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        assert all(bool((values == 0).all()) for values in pruned_entries(model))
    # the kept weights move and learn
    assert all(bool((p.detach()[masks[n]] != kept_before[n]).any()) for n, p in prunable(model).items())
    assert F.cross_entropy(model(x), y).detach() < 0.9 * start
    assert masks_of(model) == masks


def test_parameters_stay_the_same_objects() -> None:
    model = net()
    before = dict(model.named_parameters())
    values = {name: p.detach().clone() for name, p in before.items()}
    model.head.weight.requires_grad_(False)
    apply(model, some_masks())
    found = prunable(model)
    assert all(found[name] is before[name] and torch.equal(found[name], values[name]) for name in found)
    assert not model.head.parametrizations.weight.original.requires_grad and found["conv.weight"].requires_grad
    bake(model)
    after = dict(model.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in after)
    masks = some_masks()
    assert all(torch.equal(after[name].detach(), torch.where(masks[name], values[name], 0.0)) for name in masks)
    assert not parametrize.is_parametrized(model) and type(model.conv) is nn.Conv2d
    assert not after["head.weight"].requires_grad
    assert model.tied.weight is model.again.weight


def test_infinite_gradients_leave_no_nan_under_the_mask() -> None:
    layer = nn.Linear(2, 1, bias=False)
    apply(layer, {"weight": torch.tensor([[True, False]])})
    layer(torch.tensor([[1.0, torch.inf]])).sum().backward()
    assert layer.parametrizations.weight.original.grad.tolist() == [[1.0, 0.0]]
    with torch.no_grad():
        layer.parametrizations.weight.original[0, 1] = torch.nan
    assert layer.weight[0, 1] == 0


def test_copies_and_checkpoints() -> None:
    model, (x, _) = apply(net(), some_masks()), batch()
    twin = copy.deepcopy(model)
    assert torch.equal(twin.eval()(x), model.eval()(x)) and masks_of(twin) == masks_of(model)
    assert twin.tied.parametrizations.weight[0] is twin.again.parametrizations.weight[0]
    other = apply(net(5), some_masks(seed=5))
    assert masks_of(other) != masks_of(model)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert masks_of(other) == masks_of(model) and torch.equal(other.eval()(x), model(x))


def test_changing_a_copy_leaves_the_model_alone() -> None:
    masks = some_masks()
    model, (x, _) = apply(net(), masks).eval(), batch()
    expected = model(x)
    twin = copy.deepcopy(model)
    bake(twin)
    assert torch.equal(model(x), expected) and torch.equal(twin(x), expected) and masks_of(model) == masks
    other = copy.deepcopy(model)
    apply(other, {"conv.bias": torch.tensor([True, False, True, True])})
    assert other.conv.bias[1] == 0 and model.conv.bias[1] != 0 and "bias" not in model.conv.parametrizations
    assert torch.equal(model(x), expected)


@pytest.mark.filterwarnings("ignore:Guards may run slower")  # of Python 3.13.0
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled(backend: str) -> None:
    (x, y), masks = batch(), some_masks()
    plain, model = apply(net(), masks), apply(net(), masks)
    compiled = torch.compile(model, backend=backend)
    losses = []
    for each in (plain, compiled):
        optimizer = torch.optim.SGD(each.parameters(), 0.1, momentum=0.9, weight_decay=1e-2)
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(each(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert all(bool((values == 0).all()) for values in pruned_entries(model))
    assert masks_of(compiled) == masks  # looked through
    assert masks_of(apply(torch.compile(net(), backend=backend), masks)) == masks


def test_a_pruned_model_is_pruned_further() -> None:
    first, second = some_masks(0.5, 1), some_masks(0.5, 2)
    model = apply(apply(net(), first), second)
    both = Masks({name: first[name] & second[name] for name in first})
    assert masks_of(model) == both
    assert len(model.conv.parametrizations.weight) == 1
    assert all(bool((both[name] | ~mask).all()) for name, mask in keep(magnitude(model), 0.9).items())


def test_shared_weights_are_masked_once_for_both() -> None:
    masks = some_masks()
    model = apply(net(), masks)
    assert "again.weight" not in masks
    assert bool((model.again.weight[~masks["tied.weight"]] == 0).all())
    assert model.again.parametrizations.weight.original is model.tied.parametrizations.weight.original
    more = some_masks(0.5, 3)
    assert torch.equal(masks_of(apply(model, more))["tied.weight"], masks["tied.weight"] & more["tied.weight"])


def test_masks_of_torch_are_read_and_baked() -> None:
    model, (x, _) = net().eval(), batch()
    names = [name for name, _ in model.named_parameters()]
    torch_prune.random_unstructured(model.conv, "weight", 0.5)
    torch_prune.l1_unstructured(model.head, "weight", 0.3)
    masks = masks_of(model)
    assert list(masks) == ["conv.weight", "head.weight"]
    assert torch.equal(masks["conv.weight"], model.conv.weight_mask.bool())
    expected = model(x)
    with pytest.raises(InputError, match=r"'conv\.weight' is pruned by torch\.nn\.utils\.prune.*bake"):
        apply(model, {"tied.weight": torch.ones(12, 12, dtype=torch.bool), **masks})
    assert not parametrize.is_parametrized(model)
    assert torch.equal(bake(model)(x), expected)
    assert sorted(name for name, _ in model.named_parameters()) == sorted(names)
    assert masks_of(apply(model, masks)) == masks and torch.equal(model(x), expected)


def test_masks_on_top_of_another_parametrization() -> None:
    layer = parametrizations.weight_norm(nn.Linear(4, 3))
    x, mask = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.ones(3, 4, dtype=torch.bool)
    mask[:, 1] = False
    dense = layer.weight.detach().clone()
    apply(layer, {"weight": mask})
    assert torch.equal(layer.weight, torch.where(mask, dense, 0.0)) and torch.equal(masks_of(layer)["weight"], mask)
    expected = layer(x).detach()
    assert torch.allclose(bake(layer)(x), expected) and not parametrize.is_parametrized(layer)


def shape(model: nn.Module) -> str:
    return f"{model}{[(n, p.shape, id(p)) for n, p in model.named_parameters()]}"


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"conv.wieght": (4, 1, 3, 3)}, r"model than this Net: it has no weight 'conv\.wieght'\. .*'conv\.weight'\?"),
        ({"conv.weight": (4, 1, 3, 3), "head.weight": (3, 11)}, r"'head\.weight' is \(3, 12\), its mask \(3, 11\)"),
        ({f"{i}": (1,) for i in range(9)}, "and 6 more"),
        ({"again.weight": (12, 12)}, r"no weight 'again\.weight'"),
    ],
)
def test_masks_of_another_model(masks: dict[str, tuple[int, ...]], message: str) -> None:
    model = net()
    before = shape(model)
    with pytest.raises(InputError, match=message):
        apply(model, {name: torch.ones(size, dtype=torch.bool) for name, size in masks.items()})
    assert shape(model) == before


def test_weights_that_cannot_be_masked() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "lazy": nn.LazyLinear(2)})
    before = shape(model["a"])
    with pytest.raises(InputError, match=r"'lazy\.weight' has no values yet"):
        apply(model, {"a.weight": torch.ones(2, 2).bool(), "lazy.weight": torch.ones(2, 2).bool()})
    assert shape(model["a"]) == before
    with pytest.raises(InputError, match="is not pruned: no weight has a mask"):
        masks_of(model["a"])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: type[nn.RNNBase]) -> None:
    model = kind(3, 4, 2, bidirectional=True)
    source = torch.Generator().manual_seed(0)
    x = torch.randn(5, 2, 3, generator=source)
    masks = {n: torch.rand(p.shape, generator=source) < 0.4 for n, p in model.named_parameters() if p.dim() == 2}
    twin = copy.deepcopy(model)  # zeros written into it after each step
    names = [name for name, _ in model.named_parameters()]

    def zeros() -> None:
        with torch.no_grad():
            for name, mask in masks.items():
                dict(twin.named_parameters())[name].mul_(mask)

    zeros()
    apply(model, masks)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, twin)]
    for _ in range(5):
        assert torch.allclose(model(x)[0], twin(x)[0], atol=1e-6)
        for each, optimizer in zip((model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            each(x)[0].square().sum().backward()
            optimizer.step()
        zeros()
    expected = model(x)[0].detach()
    copied = copy.deepcopy(model)  # after a run
    assert torch.equal(copied(x)[0], expected)
    assert torch.equal(bake(copied)(x)[0], expected) and not copied._forward_hooks
    moved = copy.deepcopy(model.double())  # before a run: moving fills torch's list of weights again
    assert torch.allclose(moved(x.double())[0].float(), expected, atol=1e-6) and not model._forward_hooks
    assert torch.allclose(model(x.double())[0].float(), expected, atol=1e-6)
    assert masks_of(model) == Masks(masks)
    assert [name for name, _ in bake(model).named_parameters()] == names


def test_nothing_is_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    model, old = net(), some_masks(0.3, 4)
    apply(model, {"conv.weight": old["conv.weight"]})
    before, register = shape(model), parametrize.register_parametrization

    def breaks(module: nn.Module, attribute: str, step: nn.Module) -> nn.Module:
        if module is model.head:
            raise RuntimeError("no")
        return register(module, attribute, step)

    monkeypatch.setattr(parametrize, "register_parametrization", breaks)
    with pytest.raises(RuntimeError, match="no"):
        apply(model, some_masks())
    assert shape(model) == before and torch.equal(masks_of(model)["conv.weight"], old["conv.weight"])


def test_attention_and_frozen_names() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    masks = keep(random(model), 0.8)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    apply(model, masks).eval()
    assert {"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight"} <= set(masks)
    slow = model(x)
    with torch.no_grad():
        fast = model(x)
    baked = bake(copy.deepcopy(model))(x)
    assert torch.allclose(slow, baked, atol=1e-6) and torch.allclose(fast, baked, atol=1e-6)


@pytest.mark.parametrize("before", ["plain", "ours", "torch's"])
def test_masks_become_those_of_torch_prune(before: str) -> None:
    model, (x, _) = net().eval(), batch()
    masks = keep(magnitude(model), sparsity=0.6)
    there = keep(random(model, seed=1), sparsity=0.3)
    left = masks if before == "plain" else Masks({name: masks[name] & there[name] for name in masks})
    dense = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    expected = apply(copy.deepcopy(model), left)(x)
    parameters = {id(parameter) for parameter in model.parameters()}
    if before == "ours":
        apply(model, there)
    elif before == "torch's":
        there.to_torch_prune(model)
    assert masks.to_torch_prune(model) is model and torch_prune.is_pruned(model)
    assert masks_of(model) == left and not parametrize.is_parametrized(model)
    assert {id(parameter) for parameter in model.parameters()} == parameters  # an optimizer's list is still right
    assert torch.equal(model(x), expected)
    assert torch.equal(model.conv.weight_orig, dense["conv.weight"])  # nothing under the masks is lost
    assert model.again.weight_orig is model.tied.weight_orig  # tied weights stay tied
    model(x).sum().backward()
    assert not model.head.weight_orig.grad[~left["head.weight"]].any()
    torch_prune.remove(model.conv, "weight")  # torch's own way back
    assert torch.equal(model.conv.weight, torch.where(left["conv.weight"], dense["conv.weight"], 0.0))


def test_what_torch_prune_cannot_mask_is_refused_whole() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2))
    ones = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in prunable(model).items()}
    with pytest.raises(InputError, match=r"cannot mask '1\.out_proj\.weight'.*Use apply"):
        Masks(ones).to_torch_prune(model)
    normed = nn.Sequential(nn.Linear(8, 8), parametrizations.weight_norm(nn.Linear(8, 4)))
    both = {f"{at}.weight": torch.ones(out, 8, dtype=torch.bool) for at, out in ((0, 8), (1, 4))}
    with pytest.raises(InputError, match=r"'1\.weight' has a parametrization"):
        Masks(both).to_torch_prune(normed)
    with pytest.raises(InputError, match="another model"):
        Masks(both).to_torch_prune(net())
    assert not torch_prune.is_pruned(model) and not torch_prune.is_pruned(normed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 4), (3, 5, 4), (4, 3, 2, 2)])
def test_a_mask_selects_to_the_bit_as_torch_does(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Also where NaN or inf lie under it, and for gradients that come transposed."""
    source = torch.Generator().manual_seed(0)
    mask, weight = torch.rand(shape, generator=source) < 0.5, torch.randn(shape, generator=source).to(dtype)
    gradient = torch.randn(shape[::-1], generator=source).to(dtype).permute(*range(len(shape))[::-1])
    weight[~mask], gradient[~mask] = torch.nan, torch.inf
    leaf = weight.clone().requires_grad_()
    out = Masked(mask)(leaf)
    out.backward(gradient)
    assert out.dtype == dtype
    assert torch.equal(out, torch.where(mask, weight, 0.0))
    assert torch.equal(leaf.grad, torch.where(mask, gradient, 0.0))
