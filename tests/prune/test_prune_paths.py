"""Effective sparsity: weights on a path from input to output, against walks of all paths and removal of each weight."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.prune.effects.paths import on_paths
from epoch0.prune.masks.apply import apply
from epoch0.prune.masks.masks import Masks, keep
from epoch0.prune.scores.scores import magnitude, random
from path_twins import edges_on_paths, matters


class Skips(nn.Module):
    """Dense layers with a skip over the second, another one into the output, and all kinds of nonlinearities."""

    def __init__(self, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        inputs, width, outputs = sizes
        self.a, self.b = nn.Linear(inputs, width), nn.Linear(width, width)
        self.c, self.d = nn.Linear(width, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        return F.relu(self.c(F.gelu(h - torch.sigmoid(self.b(h))))).sub(self.d(x))

    def graph(self, masks: Masks) -> dict:
        edges: dict = {}
        for name, start, end in (("a", "x", "h"), ("b", "h", "g"), ("c", "s", "y"), ("d", "x", "y")):
            for i, j in masks[f"{name}.weight"].nonzero().tolist():
                edges[(start, j), (end, i)] = (f"{name}.weight", (i, j))
        for i in range(self.b.in_features):
            edges[("h", i), ("s", i)] = edges[("g", i), ("s", i)] = None
        return edges


@given(st.tuples(*[st.integers(1, 4)] * 3), st.integers(0, 10**6), st.floats(0.05, 0.7))
def test_dense_network_with_skips(sizes: tuple[int, int, int], seed: int, density: float) -> None:
    model, source = Skips(sizes), torch.Generator().manual_seed(seed)
    masks = Masks({f"{n}.weight": torch.rand(model.get_submodule(n).weight.shape, generator=source) < density
                   for n in "abcd"})  # fmt: skip
    starts, ends = {("x", i) for i in range(sizes[0])}, {("y", i) for i in range(sizes[2])}
    expected = edges_on_paths(model.graph(masks), starts, ends)
    effective = on_paths(model, masks, (sizes[0],))
    found = {(name, tuple(i)) for name, mask in effective.items() for i in mask.nonzero().tolist()}
    assert found == expected


class Convolutions(nn.Module):
    """Strides, padding, groups, dilation, pooling, a transposed convolution, concatenation, all of it linear."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.b = nn.Conv2d(4, 4, 3, stride=2, groups=2, bias=False)
        self.c = nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1)
        self.d = nn.Conv2d(4, 3, 2, dilation=2)
        self.e = nn.Linear(3 * 2 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h = torch.cat([self.c(self.b(h)), x], dim=1)
        h = self.d(F.avg_pool2d(F.pad(h, (0, 1, 1, 0)), 2, ceil_mode=True))[:, :, :2, :2]
        return self.e(h.flatten(1))


class OneRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(1, 3, 5, padding=2, padding_mode="circular"), nn.Conv1d(3, 2, 3, padding=1, stride=3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x)).transpose(1, 2).mean(1)


def one_pixel() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(3, 2))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (Convolutions, (2, 6, 6)),
    "one row": (OneRow, (1, 2)),
    "an image of one pixel": (one_pixel, (2, 1, 1)),
}


@pytest.mark.sample(13)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("density", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_against_removing_each_weight(name: str, density: float, seed: int) -> None:
    model, shape = CASES[name][0](), CASES[name][1]
    masks = keep(random(model, seed), 1 - density)
    found, expected = on_paths(model, masks, shape), matters(model, dict(masks), shape)
    assert all(torch.equal(found[n], expected[n]) for n in masks)


def test_padding_is_no_input() -> None:
    model = one_pixel()
    everything = keep(magnitude(model), 0.0)
    effective = on_paths(model, everything, (2, 1, 1))
    assert effective["0.weight"].sum() == 3 * 2 and bool(effective["0.weight"][:, :, 1, 1].all())
    with_model = everything.summary(model, (2, 1, 1))
    assert with_model.effective_sparsity == 1 - 12 / 60


def test_a_bias_is_no_path() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1))
    masks = Masks({"0.weight": torch.tensor([[True, True], [False, False]]), "2.weight": torch.tensor([[True, True]])})
    assert on_paths(model, masks, (2,))["2.weight"].tolist() == [[True, False]]


class Gate(nn.Module):
    """y = (V x) * sigmoid(G x): a gate of a unit that is always zero does nothing, and a closed path needs no gate."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.g = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.v(x) * torch.sigmoid(self.g(x))


class Product(Gate):
    def forward(self, x: Tensor) -> Tensor:
        return self.v(x) * self.g(x)


def test_max_pooling_looks_where_torch_does() -> None:
    source = torch.Generator().manual_seed(0)
    for _ in range(40):
        size, stride = (int(torch.randint(1, 5, (), generator=source)) for _ in range(2))
        padding = int(torch.randint(0, size // 2 + 1, (), generator=source))
        ceil, n = bool(torch.rand((), generator=source) < 0.5), int(torch.randint(5, 12, (), generator=source))
        pool = nn.MaxPool1d(size, stride, padding, ceil_mode=ceil)
        x = torch.eye(n)[:, None]  # a single entry above zero: the windows that see it
        seen = pool(x)[:, 0] > 0
        model = nn.Sequential(pool, nn.Flatten(), nn.Linear(seen.shape[1], 1))
        everything = keep(magnitude(model), 0.0)
        assert on_paths(model, everything, (1, n))["2.weight"].all()
        place = int(torch.randint(n, (), generator=source))
        chosen = nn.Sequential(nn.Linear(n, n), *model)
        masks = {"0.weight": torch.zeros(n, n).bool(), "3.weight": torch.ones(1, seen.shape[1]).bool()}
        masks["0.weight"][place, 0] = True
        assert torch.equal(on_paths(chosen, masks, (1, n))["3.weight"][0], seen[place])


@pytest.mark.parametrize(
    ("kind", "v", "g"),
    [(Gate, [[1, 1], [0, 0]], [[1, 0], [0, 0]]), (Product, [[1, 1], [0, 0]], [[1, 0], [0, 0]])],
)
def test_products(kind: type[nn.Module], v: list[list[int]], g: list[list[int]]) -> None:
    model = kind()
    masks = Masks({"v.weight": torch.tensor(v).bool(), "g.weight": torch.tensor([[1, 0], [1, 1]]).bool()})
    found = on_paths(model, masks, (2,))
    assert found["v.weight"].tolist() == torch.tensor(v).bool().tolist()
    assert found["g.weight"].tolist() == torch.tensor(g).bool().tolist()  # its second unit multiplies zero
    nothing = Masks({"v.weight": torch.ones(2, 2).bool(), "g.weight": torch.zeros(2, 2).bool()})
    open_ = on_paths(model, nothing, (2,))["v.weight"]
    assert bool(open_.all()) == (kind is Gate) and bool(open_.any()) == (kind is Gate)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.squeeze, self.head = nn.BatchNorm2d(4), nn.Linear(4, 4), nn.Linear(36, 3)
        self.relu, self.pool, self.drop = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.norm(self.first(x)))
        h = h * torch.softmax(self.squeeze(h.mean((2, 3))), -1)[:, :, None, None]
        h += x
        h = self.relu(self.second(h) / 2 - 1)
        return self.head(self.drop(self.pool(h)).flatten(1)).log_softmax(-1)


def test_a_realistic_block_dead_channel_by_dead_channel() -> None:
    model = Block()
    masks = dict(keep(magnitude(model), 0.0))
    masks["second.weight"][:, 1] = False  # nobody listens to channel 1 after the sum
    masks["squeeze.weight"][:, 1] = False  # nor on its way to the gates
    masks["first.weight"][2] = False  # channel 2 has only the norm's bias, which the gate lets through
    masks["head.weight"][:, 9:18] = False  # nobody listens to channel 1 at the end
    found = on_paths(model.train(), masks, (4, 4, 4))
    assert not bool(found["first.weight"][1].any()) and bool(found["first.weight"][[0, 3]].all())
    assert not bool(found["second.weight"][1].any()) and bool(found["second.weight"][0, [0, 2, 3]].all())
    assert not bool(found["squeeze.weight"][1].any())
    assert torch.equal(found["squeeze.weight"][[0, 2, 3]], torch.tensor([True, False, False, True]).expand(3, 4))
    assert torch.equal(found["head.weight"], masks["head.weight"])
    assert model.training and model.norm.num_batches_tracked == 0


@pytest.mark.slow
def test_deep_networks_neither_overflow_nor_vanish() -> None:
    model = mlp([30] * 120, "tanh")
    full = keep(magnitude(model), 0.0)
    assert on_paths(model, full, (30,)) == full
    masks = keep(random(model), 0.9)
    once = on_paths(model, masks, (30,))
    assert 0 < once.kept < masks.kept
    assert on_paths(model, once, (30,)) == once  # what is on a path stays on one


def test_a_pruned_model_counts_its_own_masks() -> None:
    model = Convolutions()
    one, other = keep(random(model, 1), 0.5), keep(random(model, 2), 0.5)
    both = {name: one[name] & other[name] for name in one}
    expected = on_paths(model, both, (2, 6, 6))
    assert on_paths(apply(model, one), other, (2, 6, 6)) == expected
    assert on_paths(model, both, torch.zeros(9, 2, 6, 6)) == expected


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2,
                                          enable_nested_tensor=False)  # fmt: skip
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.out(self.body(self.words(tokens), mask=mask, is_causal=True))


def test_attention() -> None:
    model, tokens = Words(), torch.arange(5)[None]
    masks = {name: mask for name, mask in keep(magnitude(model), 0.0).items() if name.startswith("body")}
    assert on_paths(model, masks, tokens) == Masks(masks)
    values = masks["body.layers.0.self_attn.in_proj_weight"]
    values[16:20] = False  # no values in the first head: nobody looks through its queries and keys
    masks["body.layers.1.self_attn.out_proj.weight"][:, 4:] = False  # nobody listens to the second head
    found = on_paths(model, masks, tokens)
    first, second = (found[f"body.layers.{i}.self_attn.in_proj_weight"] for i in range(2))
    # with a bias the values of the first head are not zero, but they depend on nothing: its weights have no say
    assert not bool(first[16:20].any()) and bool(first[[4, 12, 20]].all())
    assert not bool(second[[4, 12, 20]].any()) and bool(second[[0, 8, 16]].all())


def test_what_cannot_be_followed_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.inv(self.fc(x))

    masks = Masks({"fc.weight": torch.ones(3, 3).bool()})
    with pytest.raises(InputError, match=r"operation '(linalg_)?inv' has no rule"):
        on_paths(Odd(), masks, (3, 3))
    with pytest.raises(InputError, match=r"paths of Linear cannot be followed for an input of shape \(1, 7\)"):
        on_paths(nn.Linear(3, 3), Masks({"weight": torch.ones(3, 3).bool()}), (7,))
    with pytest.raises(InputError, match=r"x=\(0,\)"):
        on_paths(nn.Linear(3, 3), Masks({"weight": torch.ones(3, 3).bool()}), (0,))


class Maxima(nn.Module):
    """Largest of a dimension with its index, of two tensors, of everything; pooled adaptively."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(x)
        pair = torch.maximum(h[:, :1], h[:, 1:2]) + h[:, :2].max(dim=1, keepdim=True).values
        pooled = F.adaptive_max_pool1d(h[:, None, 2:3], 1).flatten(1)
        return torch.cat([pair, pooled, h[:, :2].amax(1, keepdim=True)], 1)


def test_maxima() -> None:
    masks = Masks({"fc.weight": torch.ones(4, 4).bool()})
    found = on_paths(Maxima(), masks, (4,))["fc.weight"]
    assert found.all(1).tolist() == [True, True, True, False] and not bool(found[3].any())


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_attention_hide_what_they_are_made_to_hide(kind: str) -> None:
    """Each place sees itself only, and the first is read: nothing that the others pass on is on a path."""

    class Places(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.randn(3, 4, 8))
            self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            h, hide = torch.einsum("bnc,ncd->bnd", x, self.own), ~torch.eye(3, dtype=torch.bool)
            mask = hide if kind == "bool" else torch.zeros(3, 3).masked_fill(hide, -torch.inf)
            return self.out(self.attention(h, h, h, attn_mask=mask)[0][:, 0])

    model = Places()
    left = on_paths(model, keep(magnitude(model), 0.0), (3, 4))
    assert left["own"].flatten(1).any(1).tolist() == [True, False, False]


class Edges(nn.Module):
    """Two layers over a graph whose adjacency matrix comes beside the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        out: Tensor = self.b(edges @ F.relu(self.a(edges @ x)))
        return out


def test_a_batch_as_the_model_is_called_with_it() -> None:
    """A graph with its edges, what is zero in it kept zero, against the removal of each weight; a dict; forward=."""
    model, edges = Edges(), torch.eye(8).roll(1, 0)
    x = torch.rand(8, 3, generator=torch.Generator().manual_seed(0)) + 0.5
    x[:, 1] = 0  # nothing comes in there
    masks = keep(random(model, seed=3), 0.4)
    weights = {name: torch.rand(p.shape) + 0.5 for name, p in model.named_parameters()}
    weights = {name: value * masks[name] for name, value in weights.items()}
    whole, expected = torch.func.functional_call(model, weights, (x, edges)), {}
    for name, mask in masks.items():
        expected[name] = torch.zeros_like(mask)
        for row, column in mask.nonzero().tolist():
            less = weights[name].clone()
            less[row, column] = 0
            without = torch.func.functional_call(model, {**weights, name: less}, (x, edges))
            expected[name][row, column] = not torch.equal(without, whole)
    found = [
        on_paths(model, masks, (x, edges)),
        on_paths(model, masks, {"x": x, "edges": edges}),
        on_paths(model, masks, (edges, x), forward=lambda net, given: net(given[1], given[0])),
    ]
    assert all(torch.equal(one[name], expected[name]) for one in found for name in masks)
    assert not bool(found[0]["a.weight"][:, 1].any()) and bool(expected["a.weight"].any())
    assert masks.summary(model, (x, edges)).effective == found[0].kept > 0


class Again(nn.Module):
    """Half of it is computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(torch.utils.checkpoint.checkpoint(self.a, x, use_reentrant=False))
        return out


def test_parts_that_are_computed_again_are_refused() -> None:
    model = Again()
    with pytest.raises(InputError, match=r"paths of Again .* computed again; switch checkpointing off"):
        keep(magnitude(model), 0.5).summary(model, (3,))
