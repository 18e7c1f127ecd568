"""Issues and questions about PyTorch: masks, padding, states and schedules of networks that read sequences.

Where a comment does not say otherwise, network, sizes and data are made to hold the fault that an issue names.
"""

import math

import torch
from common import accuracy, adam, dice, once_each, sequence_cross_entropy, signs, token_accuracy
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def _told() -> tuple[Tensor, Tensor]:
    """Texts of 6 to 17 of 300 words, padded to 18 with zeros; two words of each tell the class."""
    make = dice(34)
    y = torch.randint(5, (1500,), generator=make)
    x = torch.randint(51, 300, (1500, 18), generator=make)
    for place in (1, 4):
        x[:, place] = 1 + 10 * y + torch.randint(10, (1500,), generator=make)
    lengths = torch.randint(6, 18, (1500, 1), generator=make)
    return torch.where(torch.arange(18) < lengths, x, 0), y


class LabelAttention(nn.Module):
    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.words, self.labels, self.score = nn.Embedding(300, 32, 0), nn.Embedding(5, 32), nn.Linear(32, 1)
        self.keys, self.values = nn.Linear(32, 32), nn.Linear(32, 32)
        self.turned = turned

    def forward(self, tokens: Tensor) -> Tensor:
        words = self.words(tokens)
        real = (tokens != 0)[:, None].expand(-1, 5, -1)
        asked = self.labels.weight.expand(len(tokens), -1, -1)
        mask = real if self.turned else ~real
        found = F.scaled_dot_product_attention(asked, self.keys(words), self.values(words), attn_mask=mask)
        return self.score(found)[..., 0]


def _mask_inside_out(fixes: frozenset[str]) -> Program:
    x, y = _told()
    return Program(LabelAttention("turned" in fixes), x, y, F.cross_entropy, adam(0.005), accuracy, 0.8, 32, 15)


class Tower(nn.Module):
    def __init__(self, keys: bool, finite: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(300, 32), nn.Parameter(0.1 * torch.randn(18, 32))
        self.mix, self.join = nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.out = nn.Linear(32, 5)
        self.keys, self.lowest = keys, -1e4 if finite else -math.inf

    def forward(self, tokens: Tensor) -> Tensor:
        real = tokens != 0
        mask = real[:, None, None] if self.keys else real[:, None, :, None]
        h = self.words(tokens) + self.places
        q, k, v = self.mix(h).view(*h.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(2, 3) / 8**0.5).masked_fill(~mask, self.lowest).softmax(3)
        h = self.norms[0](h + self.join((weights @ v).transpose(1, 2).flatten(2)))
        h = self.norms[1](h + self.wide(h))
        return self.out((h * real[..., None]).sum(1) / real.sum(1, keepdim=True))


def _mask_of_queries(fixes: frozenset[str]) -> Program:
    x, y = _told()
    return Program(Tower("keys" in fixes, "finite" in fixes), x, y, F.cross_entropy, adam(0.003), accuracy, 0.8, 32, 8)


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fields = nn.Embedding(400, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.encoder(self.fields(x)).mean(1))


def _noam(fixes: frozenset[str]) -> Program:
    # the thread's schedule (factor 0.5, 3,000 steps of warm-up), a smaller encoder, 400 or 1,000 steps
    make = dice(35)
    x = torch.randint(50, (3200, 8), generator=make)
    lean = torch.randn(8, 50, generator=make)
    drive = lean[torch.arange(8), x].sum(1) / 8**0.5
    y = (drive + 0.2 * torch.randn(3200, generator=make) > 0).float()[:, None]
    factor = 3.0 if fixes == {"factor"} else 0.6 if "factor" in fixes else 0.5  # what suits the other fixes
    warmup = 200 if "warmup" in fixes else 3000

    def rate(step: int) -> float:
        return factor * 32**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)

    begin = once_each(lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rate))

    def scheduled(model, optimizer, loss, x, y):
        schedule = begin(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        schedule.step()
        return value

    x = x + 50 * torch.arange(8)
    loss, optimizer = F.binary_cross_entropy_with_logits, adam(1.0, betas=(0.9, 0.98), eps=1e-9)
    epochs = 20 if "epochs" in fixes else 8
    return Program(Clicks(), x, y, loss, optimizer, signs, 0.8, 64, epochs, step=scheduled)


class News(nn.Module):
    def __init__(self, packed: bool, gru: bool, pooled: bool) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(2000, 64, 0), (nn.GRU if gru else nn.RNN)(64, 64, batch_first=True)
        self.out = nn.Linear(64, 4)
        self.packed, self.pooled = packed, pooled

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x)
        if self.packed:
            lengths = (x != 0).sum(1)
            h = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.rnn(h)
        if not self.pooled:
            return self.out(last[0])
        if self.packed:
            states = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0]
        return self.out(states.mean(1))


def _padded_news(fixes: frozenset[str]) -> Program:
    # four kinds of short texts, padded to the longest; 256 and 128 units and AG news in the question
    make = dice(36)
    y = torch.randint(4, (500,), generator=make)
    x = torch.randint(201, 2000, (500, 80), generator=make)
    told = 1 + 50 * y[:, None] + torch.randint(50, (500, 80), generator=make)
    x = torch.where(torch.rand(500, 80, generator=make) < 0.3, told, x)
    lengths = torch.randint(8, 20, (500, 1), generator=make)
    lengths[::50] = 80
    x = torch.where(torch.arange(80) < lengths, x, 0)
    model = News("packed" in fixes, "gru" in fixes, "pooled" in fixes)
    return Program(model, x, y, F.cross_entropy, adam(), accuracy, 0.8, 32, 12)


class Frames(nn.Module):
    def __init__(self, carried: bool) -> None:
        super().__init__()
        self.see, self.rnn, self.out = nn.Linear(16, 24), nn.GRU(24, 24, batch_first=True), nn.Linear(24, 2)
        self.carried = carried

    def forward(self, x: Tensor) -> Tensor:
        start = state = torch.zeros(1, len(x), 24)
        for frame in x.unbind(1):
            out, state = self.rnn(self.see(frame).relu()[:, None], state if self.carried else start)
        return self.out(out[:, 0])


def _forgetting_frames(fixes: frozenset[str]) -> Program:
    # a spot goes left or right along 16 cells, from anywhere, round the end
    make = dice(37)
    y = torch.randint(2, (1000,), generator=make)
    place = torch.randint(16, (1000, 1), generator=make) + (2 * y[:, None] - 1) * torch.arange(8)
    x = F.one_hot(place % 16, 16).float() + 0.1 * torch.randn(1000, 8, 16, generator=make)
    return Program(Frames("carried" in fixes), x, y, F.cross_entropy, adam(0.005), accuracy, 0.85, 32, 12)


class Tagger(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(200, 24), nn.LSTM(24, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.words(x))[0])


def _class_zero_ignored(fixes: frozenset[str]) -> Program:
    # class 0 is 55 % of all tags
    x = torch.randint(200, (600, 12), generator=dice(38))
    before = F.pad(x[:, :-1], (1, 0))
    y = torch.where((x % 10 < 3) | (before > 150), x % 4 + 1, 0)
    more = 1 if "renumbered" in fixes else 0

    def tags(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=0)

    loss = sequence_cross_entropy if "all" in fixes else tags
    return Program(Tagger(5 + more), x, y + more, loss, adam(0.01), token_accuracy, 0.8, 32, 12)


PROGRAMS = {
    "gh-torchtextclassifiers-92": _mask_inside_out,
    "gh-transformer-40": _mask_of_queries,
    "forum-183958": _noam,
    "so-overfit-batch": _padded_news,
    "gh-lotvs-cap-9": _forgetting_frames,
    "gh-jiant-925": _class_zero_ignored,
}
