"""A model is called as its owner calls it: every kind of batch, of output and of loss, against the plain call."""

import copy
from collections import OrderedDict, UserDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.tracing.call import Call
from epoch0.tracing.layers import layers
from epoch0.tracing.tape import tape
from photograph import Photograph

VOCABULARY, WIDTH, LENGTH, EXAMPLES = 11, 8, 6, 4
IDS = torch.randint(0, VOCABULARY, (EXAMPLES, LENGTH), generator=torch.Generator().manual_seed(1))
MASK = torch.ones(EXAMPLES, LENGTH, dtype=torch.long)
MASK[0, 4:] = 0
X = torch.randn(EXAMPLES, 5, generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(7)


class Frozen(OrderedDict):  # type: ignore[type-arg]
    """A config that nobody may change, as diffusers has it."""

    def clear(self) -> None:
        raise RuntimeError("frozen")

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("frozen")


@dataclass
class Output:
    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] = ()
    cache: Any = field(default=None, repr=False)


class Encoding(UserDict):  # type: ignore[type-arg]
    """What a tokenizer gives: a mapping with attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["data"][name]
        except KeyError:
            raise AttributeError(name) from None


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)

    def forward(self, h: Tensor, mask: Tensor, other: Tensor | None = None) -> Tensor:
        q, k, v = self.mix(self.norm(h)).chunk(3, -1)
        if other is not None:
            k, v = self.mix(other).chunk(3, -1)[1:]
        return h + self.drop(self.up(F.gelu(F.scaled_dot_product_attention(q, k, v, mask))))


class Transformer(nn.Module):
    """Token ids and an attention mask to logits, with its own loss for labels."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Frozen(vocabulary=VOCABULARY)
        self.places, self.words = nn.Embedding(LENGTH, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
        self.blocks, self.head = nn.ModuleList([Attention(), Attention()]), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Any = None) -> Output:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        ahead = (1.0 - mask.float())[:, None, :] * torch.finfo(torch.float32).min
        return self.rest(self.words(input_ids), ahead, labels)

    def rest(self, words: Tensor, ahead: Tensor, labels: Tensor | None = None) -> Output:
        hidden = [words + self.places(torch.arange(words.shape[1]))]
        for block in self.blocks:
            hidden.append(block(hidden[-1], ahead))
        logits = self.head(hidden[-1])
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return Output(loss, logits, tuple(hidden))


class EncoderDecoder(nn.Module):
    """Two stacks on one embedding; the decoder's ids are the labels, moved by one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.encoder = nn.Embedding(VOCABULARY, WIDTH), Attention()
        self.decoder, self.cross = Attention(), Attention()

    def forward(self, input_ids: Tensor, labels: Tensor) -> Output:
        nothing = torch.zeros(())
        seen = self.encoder(self.words(input_ids), nothing)
        h = self.decoder(self.words(labels.roll(1, 1)), nothing)
        logits = F.linear(self.cross(h, nothing, seen), self.words.weight)
        return Output(F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits)


class Graph:
    """A graph with its edges, as torch_geometric has it."""

    def __init__(self, x: Tensor, edge_index: Tensor, y: Tensor | None = None) -> None:
        self.x, self.edge_index, self.y, self.name = x, edge_index, y, "ring"


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for place, layer in enumerate((self.first, self.second)):
            x = layer(torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]) + x)
            x = torch.relu(x) if place == 0 else x
        return x


class WholeGraph(GraphNet):
    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index)


class Classifier(nn.Module):
    """An LSTM behind an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.read = nn.Embedding(VOCABULARY, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.read(self.words(ids))[0][:, -1]))


@dataclass
class Sample:
    sample: Tensor


class UNet(nn.Module):
    """A diffusion model: noisy images, their times, and a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Frozen(channels=2)
        self.down, self.up = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 2, 3, padding=1)
        self.time, self.text = nn.Linear(4, 4), nn.Linear(3, 4)

    def forward(self, sample: Tensor, timestep: Tensor, states: Tensor | None = None, return_dict: bool = True) -> Any:
        angle = timestep.float()[:, None] * torch.arange(1.0, 5.0)
        h = F.silu(self.down(sample)) + self.time(angle.sin())[:, :, None, None]
        h = h if states is None else h + self.text(states)[:, :, None, None]
        out = self.up(h) + sample
        return Sample(out) if return_dict else (out,)


class Lightning(nn.Module):
    """A LightningModule as far as a call knows it."""

    def __init__(self, how: str = "tensor") -> None:
        super().__init__()
        self.net, self.how = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)), how

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = F.cross_entropy(self.net(x) if self.how == "inside" else self(x), y, label_smoothing=0.1)
        return {"tensor": loss, "inside": loss, "dict": {"loss": loss, "seen": 1}, "nothing": None}[self.how]


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.tanh(self.first(first)) * self.second(second)


class OneMapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return torch.tanh(self.linear(batch["image"]))


EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
IMAGES, TIMES = torch.randn(EXAMPLES, 2, 4, 4, generator=torch.Generator().manual_seed(3)), torch.arange(EXAMPLES)
Y = torch.tensor([0, 2, 1, 2])


class Packed(Classifier):
    def forward(self, words: Any) -> Tensor:
        return self.head(torch.tanh(self.read(words)[1][0][-1]))


@dataclass
class Case:
    """A model, a batch, the plain call of the owner, and what a call should know about it."""

    name: str
    model: Callable[[], nn.Module]
    batch: Any
    plain: Callable[[Any], Tensor]
    splits: bool = True
    start: tuple[int, ...] = ()
    examples: int = EXAMPLES


CASES = [
    Case("tensor", lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU()), X, lambda m: m(X), start=(4, 5)),
    Case("tuple", Two, (X, 2 * X), lambda m: m(X, 2 * X), start=(4, 5)),
    Case("list", Two, [X, 2 * X], lambda m: m(X, 2 * X), start=(4, 5)),
    Case("named tuple", Two, Pair(X, X * 3), lambda m: m(X, 3 * X), start=(4, 5)),
    Case("one mapping", OneMapping, {"image": X}, lambda m: m({"image": X}), start=(4, 5)),
    Case("ids", Transformer, IDS, lambda m: m(IDS).logits, start=(4, 6, 8)),
    Case(
        "tokenizer", Transformer, Encoding(input_ids=IDS, attention_mask=MASK), lambda m: m(IDS, MASK).logits,
        start=(4, 6, 8),
    ),
    Case(
        "labels", Transformer, {"attention_mask": MASK, "input_ids": IDS, "labels": IDS},
        lambda m: m(IDS, MASK, IDS).logits, start=(4, 6, 8),
    ),
    Case(
        "encoder and decoder", EncoderDecoder, {"input_ids": IDS, "labels": IDS[:, :3].contiguous()},
        lambda m: m(IDS, IDS[:, :3].contiguous()).logits, start=(4, 6, 8),
    ),
    Case("graph", GraphNet, Graph(X, EDGES), lambda m: m(X, EDGES), splits=False, start=(4, 5)),
    Case("edges", GraphNet, (X, EDGES), lambda m: m(X, EDGES), splits=False, start=(4, 5)),
    Case("whole graph", WholeGraph, Graph(X, EDGES), lambda m: m(Graph(X, EDGES)), splits=False, start=(4, 5)),
    Case("lstm", Classifier, IDS, lambda m: m(IDS), start=(4, 6, 8)),
    Case(
        "packed", Packed, pack_sequence([torch.ones(3, WIDTH), torch.ones(2, WIDTH)]),
        lambda m: m(pack_padded_sequence(torch.ones(2, 3, WIDTH), torch.tensor([3, 2]), batch_first=True)),
        splits=False, start=(5, 8), examples=2,
    ),
    Case(
        "diffusion", UNet, {"sample": IMAGES, "timestep": TIMES}, lambda m: m(IMAGES, TIMES).sample, start=(4, 2, 4, 4)
    ),
    Case(
        "condition", UNet, (IMAGES, TIMES, X[:, :3], False), lambda m: m(IMAGES, TIMES, X[:, :3]).sample,
        start=(4, 2, 4, 4),
    ),
    Case("pair of lightning", Lightning, (X, Y), lambda m: m(X), start=(4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_owners_call_and_its_record(case: Case) -> None:
    model = case.model().eval()
    call = Call.of(model, case.batch)
    expected = case.plain(model)
    torch.testing.assert_close(call.output(call.run()), expected, rtol=0, atol=0)
    assert (call.examples, call.splits, call.model) == (case.examples, case.splits, model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        next(twin.parameters()).mul_(0)
    torch.testing.assert_close(call.output(call.run(twin)), case.plain(twin), rtol=0, atol=0)
    photograph = Photograph(model.train())
    with tape(model, case.batch) as t:
        assert tuple(t.x.shape) == case.start == t.nodes[0].shape
        found = layers(t)
        assert found[0].input == 0 and found[-1].output == t.output
        for x in (t.x, t.x.clone()):
            torch.testing.assert_close(t.run(x), expected)
        half = t.run(0.5 * t.x)
        assert not torch.allclose(half, expected)
    photograph.check()


@pytest.mark.parametrize("case", [c for c in CASES if c.splits], ids=lambda case: case.name)
def test_some_of_the_examples(case: Case) -> None:
    call = Call.of(case.model().eval(), case.batch)
    whole = call.output(call.run())
    for index, rows in ((torch.tensor([2, 0]), [2, 0]), (slice(1, 3), [1, 2])):
        some = call.rows(index)
        assert some.examples == 2
        torch.testing.assert_close(some.output(some.run()), whole[rows])


def test_what_cannot_be_split_says_so() -> None:
    with pytest.raises(InputError, match=r"a Graph of x \(4, 5\), edge_index \(2, 5\) cannot be split"):
        Call.of(GraphNet(), Graph(X, EDGES)).rows(slice(2))


def test_targets_are_split_with_the_examples() -> None:
    call = Call.of(nn.Linear(5, 3), X, Y)
    some = call.rows(torch.tensor([3, 1]))
    assert some.targets.tolist() == [2, 2]
    torch.testing.assert_close(some.loss(some.run()), F.cross_entropy(call.model(X[[3, 1]]), Y[[3, 1]]))


def test_the_batch_takes_the_models_dtype_and_stays_itself() -> None:
    given = {"sample": IMAGES.double().requires_grad_(), "timestep": TIMES}
    call = Call.of(UNet(), given)
    sample = call.batch["sample"]  # a point at which the model may differentiate, and no longer what was given
    assert sample.dtype == torch.float32 and sample.is_leaf and sample.requires_grad
    assert not Call.of(UNet(), {**given, "sample": IMAGES}).batch["sample"].requires_grad
    sample.sum().backward()
    assert given["sample"].grad is None
    assert call.batch["timestep"].dtype == torch.int64 and given["sample"].dtype == torch.float64
    graph = Graph(X.double(), EDGES)
    changed = Call.of(GraphNet(), graph).batch
    assert changed.x.dtype == torch.float32 and changed.name == "ring" and graph.x.dtype == torch.float64
    encoding = Call.of(UNet(), Encoding(sample=IMAGES.double(), timestep=TIMES)).batch
    assert isinstance(encoding, Encoding) and encoding.sample.dtype == torch.float32


def linear(function: Callable[[Tensor], Any]) -> nn.Module:
    model = nn.Linear(5, 3)
    model.register_forward_hook(lambda module, args, result: function(result))
    return model


@pytest.mark.parametrize(
    "function",
    [
        lambda h: h, lambda h: (h, 2 * h), lambda h: [h.argmax(1), h], lambda h: {"out": h, "aux": 2 * h},
        lambda h: {"aux": 2 * h, "logits": h}, lambda h: Output(h.sum(), h), lambda h: Output(None, h, (h * 2,)),
        lambda h: {"hidden": (2 * h, 3 * h), "last_hidden_state": h}, lambda h: Sample(h), lambda h: Pair(h, 2 * h),
        lambda h: (h.sum(), h), lambda h: (2 * h.detach(), h), lambda h: Output(cache=object(), hidden_states=(h,)),
        lambda h: Encoding(loss=h.sum(), other=h),
    ],
)  # fmt: skip
def test_every_kind_of_output(function: Callable[[Tensor], Any]) -> None:
    model = linear(function)
    call = Call.of(model, X)
    torch.testing.assert_close(call.output(call.run()), F.linear(X, model.weight, model.bias), rtol=0, atol=0)


def test_losses_that_were_given() -> None:
    model = Transformer().eval()
    logits = model(IDS).logits

    def own(out: Output, y: Tensor) -> Tensor:
        return F.cross_entropy(out.logits.flatten(0, 1), y.flatten(), reduction="sum")  # type: ignore[union-attr]

    def plain(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="sum")

    expected = plain(logits, IDS)
    for loss in (own, plain):  # what the model returns where it takes that, else the output
        call = Call.of(model, IDS, IDS, loss=loss)
        assert call.has_loss
        torch.testing.assert_close(call.loss(call.run()), expected)
        torch.testing.assert_close(call.loss(call.run(), 0 * IDS), plain(logits, 0 * IDS))
    both = linear(lambda h: (h, 2 * h))
    call = Call.of(both, X, Y, loss=lambda out, y: F.cross_entropy(out[1], y))
    torch.testing.assert_close(call.loss(call.run()), F.cross_entropy(both(X)[1], Y))
    call = Call.of(both, X, {"class": Y}, loss=lambda out, y: F.cross_entropy(out[0], y["class"]))
    torch.testing.assert_close(call.loss(call.run()), F.cross_entropy(both(X)[0], Y))
    with pytest.raises(InputError, match="the loss fails on outputs"):
        call = Call.of(both, X, Y, loss=lambda out, y: F.cross_entropy(out.argmax(1).nothing, y))
        call.loss(call.run())


def test_losses_by_default() -> None:
    model = linear(lambda h: (h, 2 * h))  # the second output is auxiliary, and is left out
    call = Call.of(model, X, Y)
    torch.testing.assert_close(call.loss(call.run()), F.cross_entropy(model(X)[0], Y))
    values = torch.randn(EXAMPLES, 3)
    call = Call.of(model, X, values)
    torch.testing.assert_close(call.loss(call.run()), F.mse_loss(model(X)[0], values))
    ignored = torch.tensor([0, -100, 1, 2])
    call = Call.of(model, X, ignored)
    torch.testing.assert_close(call.loss(call.run()), F.cross_entropy(model(X)[0], ignored))


def test_the_models_own_loss() -> None:
    model = Transformer().eval()
    call = Call.of(model, {"input_ids": IDS, "labels": IDS})
    photograph = Photograph(model)
    assert call.has_loss and not Call.of(model, {"input_ids": IDS}).has_loss
    photograph.check()
    loss = call.loss(call.run())
    torch.testing.assert_close(loss, model(IDS, labels=IDS).loss)
    assert loss.requires_grad
    half = call.rows(slice(2))
    torch.testing.assert_close(half.loss(half.run()), model(IDS[:2], labels=IDS[:2]).loss)
    # labels that are an input like any other
    other = OneMapping()
    other.forward = lambda image, labels: torch.tanh(other.linear(image)) + labels[:, None]  # type: ignore[method-assign]
    assert not Call.of(other, {"image": X, "labels": Y}).has_loss


@pytest.mark.parametrize("how", ["tensor", "inside", "dict"])
def test_the_loss_of_a_training_step(how: str) -> None:
    model = Lightning(how)
    call = Call.of(model, (X, Y))
    raw = call.run()
    assert call.has_loss and call.examples == EXAMPLES
    torch.testing.assert_close(call.loss(raw), F.cross_entropy(model(X), Y, label_smoothing=0.1))
    torch.testing.assert_close(call.output(raw), model(X))
    assert not model._forward_hooks
    given = Call.of(model, (X, Y), Y)  # targets that were given come first; forward takes as many parts as it can
    torch.testing.assert_close(given.loss(given.run()), F.cross_entropy(model(X), Y))
    assert not Call.of(model, X).has_loss


def test_a_training_step_without_a_loss() -> None:
    with pytest.raises(InputError, match="training_step returns a NoneType without a loss; give targets"):
        Call.of(Lightning("nothing"), (X, Y)).run()


def test_a_training_step_that_steps_by_itself() -> None:
    model = Lightning("tensor")
    model.automatic_optimization = False
    with pytest.raises(InputError, match=r"Its training_step steps by itself, so .*: pass inputs, targets and loss="):
        Call.of(model, (X, Y)).run()
    given = Call.of(model, X, Y, loss=F.cross_entropy)
    torch.testing.assert_close(given.loss(given.run()), F.cross_entropy(model(X), Y))


def test_a_call_of_ones_own() -> None:
    model = Two().eval()
    batch = {"left": X, "right": 2 * X, "note": "kept"}

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model(batch["left"], second=batch["right"])

    call = Call.of(model, batch, Y, forward=forward)
    torch.testing.assert_close(call.output(call.run()), model(X, 2 * X))
    assert call.splits and call.rows(slice(3)).batch["note"] == "kept"
    with tape(model, batch, forward=forward) as t:
        torch.testing.assert_close(t.run(t.x), model(X, 2 * X))
        assert t.notes == ("Signals start at 'left'; 'right' held as given.",)
    mine = e0.gain(model, batch, Y, forward=forward, directions=2)
    plain = e0.gain(model, (X, 2 * X), Y, directions=2)
    assert repr(vars(mine)) == repr(vars(plain))


def test_gain_starts_behind_the_embedding() -> None:
    """The twin: the same model, fed with the embedding's output as a floating point input."""

    class Behind(Transformer):
        def forward(self, words: Tensor) -> Tensor:  # type: ignore[override]
            ahead = (1.0 - MASK.float())[:, None, :] * torch.finfo(torch.float32).min
            return self.rest(words, ahead).logits  # type: ignore[return-value]

    model, behind = Transformer(), Behind()
    behind.load_state_dict(model.state_dict())
    photograph = Photograph(model)
    whole = e0.gain(model, {"input_ids": IDS, "attention_mask": MASK}, IDS, directions=3, seed=5)
    photograph.check()
    twin = e0.gain(behind, model.words(IDS).detach(), IDS, directions=3, seed=5)
    assert repr(vars(whole)) == repr(vars(twin))
    assert [layer.name for layer in whole.layers] == ["blocks.0", "blocks.1", "head"]
    own = e0.gain(model, {"input_ids": IDS, "attention_mask": MASK, "labels": IDS}, directions=3, seed=5)
    assert repr(vars(own)) == repr(vars(whole))  # the model's own loss is the same cross-entropy


@pytest.mark.parametrize(
    ("first", "shape"),
    [
        (lambda model, ids: model.words(ids), (4, 6, 8)),
        (lambda model, ids: model.words.weight[ids], (4, 6, 8)),
        (lambda model, ids: F.one_hot(ids, VOCABULARY).float() @ model.words.weight, (4, 6, VOCABULARY)),
        (lambda model, ids: F.embedding_bag(ids, model.words.weight)[:, None], (4, WIDTH)),
        (lambda model, ids: model.words((ids + 1) % VOCABULARY) * (ids != 0).float()[:, :, None], (4, 6, 8)),
        (lambda model, ids: torch.zeros_like(ids, dtype=torch.float32)[:, :, None] + model.words(ids), (4, 6, 8)),
        (lambda model, ids: (ids.unsqueeze(-1) / VOCABULARY).expand(-1, -1, WIDTH), (4, 6, 1)),
    ],
)
def test_where_integers_become_signals(first: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    class Ids(Classifier):
        def forward(self, ids: Tensor) -> Tensor:
            return self.head(torch.tanh(first(self, ids).mean(1)))

    with tape(Ids(), IDS) as t:
        assert tuple(t.x.shape) == shape and len(layers(t)) >= 1
        assert t.notes[0].startswith("Signals start at the output of")
        torch.testing.assert_close(t.run(t.x), t.model(IDS))


def test_bytes_are_images() -> None:
    images = torch.randint(0, 256, (3, 2, 4, 4), dtype=torch.uint8)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU())
    model.forward = lambda x: model[1](model[0](x.float() / 255))  # type: ignore[method-assign]
    with tape(model, images) as t:
        torch.testing.assert_close(t.x, images.float())


def test_half_precision_is_measured_in_a_copy() -> None:
    model = Transformer().to(torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    call = Call.of(model, {"input_ids": IDS})
    assert call.notes == ("The weights are bfloat16: a float32 copy was measured.",)
    wide = copy.deepcopy(model).float()
    torch.testing.assert_close(call.output(call.run()), wide.train()(IDS).logits, rtol=1, atol=10)  # dropout is on
    assert repr(vars(e0.gain(model, IDS, directions=2))) == repr(vars(e0.gain(wide, IDS, directions=2)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()) and model.training


def test_compiled_parts_run_as_they_were_written() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    plain = repr(vars(e0.gain(model, X, directions=2)))
    assert repr(vars(e0.gain(torch.compile(model, backend="eager"), X, directions=2))) == plain
    inside = nn.Sequential(torch.compile(model, backend="eager"))
    with tape(inside, X) as t:
        assert [op.name for op in t.ops] == ["linear", "tanh", "linear"]


class Fails(nn.Module):
    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.config, self.linear, self.error = Frozen(a=1), nn.Linear(5, 3), error
        self.norm, self.seen = nn.BatchNorm1d(3), [0]

    def forward(self, x: Tensor) -> Any:
        h = self.norm(torch.tanh(self.linear(x)))
        self.seen.append(1)
        self.config["b"] = 2
        self.norm.bias.data += 1
        if self.error is not None:
            raise self.error
        return h


@pytest.mark.parametrize("error", [None, KeyError("pixel"), RuntimeError("no")])
def test_the_model_comes_back_after_a_failure(error: Exception | None) -> None:
    model = Fails(error)
    photograph, config = Photograph(model), model.config
    for measure in (lambda: e0.gain(model, X, directions=2), lambda: e0.prune.snip(model, [(X, Y)])):
        if error is None:
            measure()
        else:
            with pytest.raises(InputError, match=f"the model fails on .*{type(error).__name__}"):
                measure()
        photograph.check()
        assert model.config is config and dict(config) == {"a": 1} and model.seen == [0]


def nan(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = float("nan")
    return model


def exported() -> Any:
    return torch.export.export(nn.Linear(5, 3), (X,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (nan(nn.Linear(5, 3)), X), "'weight' holds NaN: 1 of its 15"),
        (lambda: (nn.Linear(5, 3), X / 0), r"the input \(4, 5\) holds NaN|infinity"),
        (lambda: (UNet(), {"sample": IMAGES / 0, "timestep": TIMES}), r"'sample' \(4, 2, 4, 4\) holds infinity"),
        (lambda: (nn.Linear(5, 3), X[:0]), r"the input has shape \(0, 5\): an empty batch"),
        (lambda: (Transformer(), {"input_ids": IDS[:0]}), r"'input_ids' has shape \(0, 6\): an empty batch"),
        (lambda: (nn.Linear(5, 3), X, Y[:3]), "3 targets for 4 examples"),
        (lambda: (nn.Linear(5, 3), X, Y + 1), "target 3 is out of range: the model has 3 outputs"),
        (lambda: (nn.Linear(5, 3), X, X[:, :3] / 0), r"the targets \(4, 3\) holds? (NaN|infinity)"),
        (lambda: (nn.Linear(5, 3), X, "cats"), "targets must be a torch tensor, not a str; or give a loss"),
        (lambda: (nn.Linear(5, 3), X, Y, lambda out, y: out.sum() * torch.inf), "the loss of this batch is"),
        (lambda: (nn.Linear(5, 3), X, Y, lambda out, y: out), r"one number .* not a tensor of shape \(4, 3\)"),
        (lambda: (nn.Linear(5, 3), X, Y, lambda out, y: out.detach().sum()), "must return one number computed from"),
        (lambda: (nn.Linear(5, 3), X, None, F.mse_loss), "a loss was given but no targets"),
        (lambda: (nn.Linear(5, 3), X, Y, "cross"), r"loss must be a function, loss\(outputs, targets\), not a str"),
        (lambda: (nn.Linear(5, 3), (X, Y)), r"inputs of shapes \(4, 5\), \(4,\).*targets are an argument of their own"),
        (lambda: (nn.Linear(5, 3), {"x": X}), r"a dict of x \(4, 5\)"),
        (lambda: (Transformer(), {"input_ids": IDS, "idx": TIMES}), "unexpected keyword argument 'idx' .*forward="),
        (lambda: (nn.Linear(5, 3), X.numpy()), "it is a ndarray"),
        (lambda: (nn.Linear(5, 3), []), "the batch holds no tensor: it is a list"),
        (lambda: (linear(lambda h: h.argmax(1)), X), "returns a Tensor without a floating point tensor; give forward="),
        (lambda: (linear(lambda h: h.argmax(1).tolist()), X), "returns a list without a floating point tensor"),
        (lambda: (torch.jit.script(nn.Linear(5, 3)), X), "scripted .* pass the nn.Module it was scripted from"),
        (lambda: (torch.jit.trace(nn.Linear(5, 3), X), X), "scripted .* pass the nn.Module it was scripted from"),
        (lambda: (nn.Sequential(torch.jit.script(nn.Linear(5, 3))), X), "the module '0' is scripted"),
        (lambda: (exported(), X), "ExportedProgram; pass the nn.Module it was exported from"),
        (lambda: (exported().module(), X), "the model is exported .* pass the nn.Module it was exported from"),
        (lambda: (nn.LazyLinear(3), X), "'weight' is lazy"),
        (lambda: (Transformer(), {"input_ids": IDS, "labels": IDS + VOCABULARY}), "out of bounds|out of range"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.torch.jit:FutureWarning")
def test_what_is_refused_in_one_line(make: Callable[[], Any], message: str) -> None:
    model, batch, *rest = make()
    with pytest.raises(InputError, match=message) as caught:
        call = Call.of(model, batch, *rest[:1], loss=rest[1] if len(rest) > 1 else None)
        raw = call.run()
        call.output(raw)
        call.loss(raw)
    assert "\n" not in str(caught.value)


def test_a_batch_of_integers_that_never_become_floats() -> None:
    model = nn.Linear(5, 3)
    model.forward = lambda ids: model.weight.sum() * torch.ones(4)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="makes no floating point tensor from an input of shape"), tape(model, IDS):
        raise AssertionError("no record can be made")


def test_a_mask_may_hold_minus_infinity() -> None:
    model = Attention().eval()
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    h = torch.randn(4, 6, WIDTH)
    with tape(model, {"h": h, "mask": mask}) as t:
        torch.testing.assert_close(t.run(t.x), model(h, mask))
        assert t.x.shape == h.shape


def test_pruning_scores_of_any_call() -> None:
    model = Transformer().eval()
    scores = e0.prune.snip(model, {"input_ids": IDS, "attention_mask": MASK, "labels": IDS})
    model.zero_grad()
    model(IDS, MASK, IDS).loss.backward()
    for name in ("blocks.0.mix.weight", "head.weight"):
        weight = model.get_parameter(name)
        torch.testing.assert_close(scores[name], (weight * weight.grad).abs().detach())
    model.zero_grad(set_to_none=True)
    given = [({"input_ids": IDS, "attention_mask": MASK}, IDS)]
    torch.testing.assert_close(e0.prune.snip(model, given)["head.weight"], scores["head.weight"])
    grasp = e0.prune.grasp(Two(), [((X, 2 * X), Y)])
    assert all(bool(score.isfinite().all()) for score in grasp.values())
    two = Two()
    mine = e0.prune.snip(two, [({"a": X}, Y)], forward=lambda model, batch: model(batch["a"], batch["a"]))
    torch.testing.assert_close(mine["first.weight"], e0.prune.snip(two, [((X, X), Y)])["first.weight"])


def test_a_pruned_model_is_rescaled_on_token_ids() -> None:
    model = Classifier()
    torch.nn.utils.prune.random_unstructured(model.head, "weight", 0.5)
    before = model.head.weight_orig.detach().clone()
    found = e0.prune.rescale(model, x=IDS)
    (row,) = [layer for layer in found.layers if layer.name == "head.weight"]
    torch.testing.assert_close(model.head.weight_orig.detach(), before * row.factor)
    with pytest.raises(InputError, match="too coarse"):
        e0.prune.rescale(Classifier().bfloat16(), x=IDS)


def test_the_length_of_a_curve_through_another_door() -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh())
    curve = e0.Line(X[0], X[1])
    plain = e0.trajectory_length(model, curve, points=8)
    mine = e0.trajectory_length(model, curve, points=8, forward=lambda model, x: {"logits": model(x)})
    assert mine.lengths.tolist() == plain.lengths.tolist()


def test_noise_in_the_weights_of_a_language_model() -> None:
    model = Transformer()
    batch, targets = {"input_ids": IDS, "attention_mask": MASK}, IDS.roll(1, 1)
    photograph = Photograph(model)
    found = e0.robustness(model, (batch, targets), [0.0, 2.0], layers=["head", "blocks.1.mix"], draws=2, batch_size=3)
    photograph.check()
    right = float((model.eval()(IDS, MASK).logits.argmax(-1) == targets).float().mean())
    assert found.clean == pytest.approx(right) and found.examples == EXAMPLES
    assert found.accuracies[:, 0].tolist() == [[found.clean] * 2] * 2 and (found.accuracies[:, 1] != found.clean).any()


@pytest.mark.parametrize(
    "measure",
    [
        lambda model: e0.regions.on_line(model, X[0], X[1]),
        lambda model: e0.activation_patterns(model, IDS),
        lambda model: e0.transitions(model, e0.Line(X[0], X[1])),
        lambda model: e0.dichotomies(model, X),
        lambda model: e0.prune.synflow(model, IDS),
    ],
)  # fmt: skip
def test_what_needs_floating_point_inputs_says_so(measure: Callable[[nn.Module], Any]) -> None:
    model = Transformer()
    photograph = Photograph(model)
    with pytest.raises(InputError, match="embedding") as caught:
        measure(model)
    assert "\n" not in str(caught.value)
    photograph.check()


def test_a_training_step_that_calls_parts_of_a_module_without_a_forward() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.loss = nn.Linear(4, 5), nn.Linear(5, 3), nn.CrossEntropyLoss()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return self.loss(self.head(self.body(batch[0]).relu()), batch[1])

    model, x, y = Parts(), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    call = Call.of(model, [x, y])
    raw = call.raw()
    assert torch.equal(call.output(raw), model.head(model.body(x).relu()))  # not the loss, which is a module, too
    assert torch.equal(call.loss(raw), model.training_step([x, y], 0))
    assert not any(part._forward_hooks for part in model.modules())
