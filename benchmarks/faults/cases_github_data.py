"""Programs of GitHub issues and pull requests: shapes, weights, normalization, regularization, labels, data."""

import torch
from common import (
    accuracy,
    adam,
    dice,
    digits,
    garments,
    letters,
    r_squared_all,
    sequence_cross_entropy,
    sgd,
    token_accuracy,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _small_cnn(classes: int, norm=lambda c: nn.Identity()) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2),
        norm(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        norm(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, classes),
    )


class GPT(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(65, width), nn.Parameter(torch.zeros(16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 65)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.token(x) + self.place, mask=self.mask, is_causal=True))


def _randn_everywhere(fixes: frozenset[str]) -> Program:
    x, y = letters(1000, 16)
    model = GPT()
    with torch.no_grad():
        for p in model.parameters():
            if "small" in fixes:
                p.normal_(0, 0.02) if p.ndim > 1 else None
            else:
                p.copy_(torch.randn_like(p))
    return Program(
        model,
        x,
        y,
        sequence_cross_entropy,
        lambda m: torch.optim.AdamW(m.parameters(), 1e-3),
        token_accuracy,
        0.35,
        32,
        8,
    )


class GRN(nn.Module):
    """Weights each earlier layer's output by ReLU of a bias-free layer, and adds them up."""

    def __init__(self, width: int, count: int, zero: bool) -> None:
        super().__init__()
        self.norm, self.weigh = nn.RMSNorm(width), nn.Linear(width, count, bias=False)
        nn.init.zeros_(self.weigh.weight) if zero else nn.init.normal_(self.weigh.weight, 0, 0.3)

    def forward(self, layers: list[Tensor]) -> Tensor:
        weights = self.weigh(self.norm(layers[-1])).relu()
        return (torch.stack(layers, -1) * weights[..., None, :]).sum(-1)


class DeepCrossAttention(nn.Module):
    def __init__(self, zero: bool) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(65, 32), nn.Parameter(0.02 * torch.randn(16, 32))
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.gather = nn.ModuleList([GRN(32, count, zero) for count in (1, 2, 3)])
        self.norm, self.head = nn.RMSNorm(32), nn.Linear(32, 65)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(16))

    def forward(self, x: Tensor) -> Tensor:
        layers = [self.token(x) + self.place]
        for block, gather in zip(self.blocks, self.gather, strict=False):
            layers.append(block(gather(layers), src_mask=self.mask, is_causal=True))
        return self.head(self.norm(self.gather[2](layers)))


def _zero_and_relu(fixes: frozenset[str]) -> Program:
    x, y = letters(1000, 16)
    return Program(
        DeepCrossAttention("small" not in fixes), x, y, sequence_cross_entropy, adam(3e-3), token_accuracy, 0.3, 32, 10
    )


def _frames_reshaped(fixes: frozenset[str]) -> Program:
    # videos of 80 frames with 16 features each; a frame counts where an event lies
    make = dice(40)
    starts, length = torch.randint(5, 50, (300, 1), generator=make), torch.randint(15, 25, (300, 1), generator=make)
    t = torch.arange(80)[None]
    y = ((t >= starts) & (t < starts + length)).long()
    sign = torch.randn(16, generator=make)
    x = 0.7 * y[:, None] * sign[:, None] + torch.randn(300, 16, 80, generator=make)
    model = nn.Sequential(
        nn.Conv1d(16, 32, 3, padding=1),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 32, 3, padding=1),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 2, 1),
    )

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        log_p = out.log_softmax(1)
        log_p = log_p.permute(0, 2, 1).reshape(-1, 2) if "permute" in fixes else log_p.reshape(-1, 2)
        return F.nll_loss(log_p, wanted.view(-1))

    def f_score(out: Tensor, wanted: Tensor) -> float:
        found = out.argmax(1)
        return (2 * (found & wanted).sum() / (found.sum() + wanted.sum()).clamp(min=1)).item()

    return Program(model, x, y, loss, adam(1e-3), f_score, 0.7, 8, 6)


class Separator(nn.Module):
    def __init__(self, permute: bool) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 8, 5, padding=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.rnn, self.out, self.permute = (
            nn.LSTM(128, 24, batch_first=True, bidirectional=True),
            nn.Linear(48, 16),
            permute,
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x[:, None])  # (n, 8, times, frequencies)
        h = h.permute(0, 2, 1, 3).reshape(len(x), 48, 128) if self.permute else h.view(len(x), 48, 128)
        return self.out(self.rnn(h)[0]).sigmoid()


def _view_for_permute(fixes: frozenset[str]) -> Program:
    # spectrograms of 48 times and 16 frequencies; the target is the part of a voice whose pitch jumps
    make = dice(41)
    _times, bands = torch.arange(48.0)[None, :, None], torch.arange(16.0)[None, None, :]
    pitch = torch.randn(500, 48, generator=make)[..., None] * 3 + 8 + torch.randn(500, 1, 1, generator=make) * 2
    voice = (-((bands - pitch) ** 2) / 2).exp() * (torch.rand(500, 48, 1, generator=make) < 0.7)
    x = voice + 0.3 * torch.rand(500, 48, 16, generator=make)
    model = Separator("permute" in fixes)
    return Program(
        model, x[:400], voice[:400], F.mse_loss, adam(3e-3), r_squared_all, 0.6, 16, 12, held_out=(x[400:], voice[400:])
    )


class Attend(nn.Module):
    """Reads from a context what a query asks for."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.key, self.value, self.ask = nn.Embedding(12, 24), nn.Embedding(8, 24), nn.Embedding(12, 24)
        self.out, self.last = nn.Linear(24, 8), last

    def forward(self, x: Tensor) -> Tensor:
        keys, values, query = x[:, :6], x[:, 6:12], x[:, 12]
        context = self.key(keys) + self.value(values)
        scores = (context @ self.ask(query)[..., None])[..., 0]
        weights = scores.softmax(-1) if self.last else scores.softmax(0)
        return self.out((weights[:, None] @ context)[:, 0])


def _softmax_over_batch(fixes: frozenset[str]) -> Program:
    make = dice(42)
    keys = torch.rand(3000, 12, generator=make).argsort(1)[:, :6]
    values = torch.randint(8, (3000, 6), generator=make)
    which = torch.randint(6, (3000, 1), generator=make)
    x, y = torch.cat([keys, values, keys.gather(1, which)], 1), values.gather(1, which)[:, 0]
    return Program(Attend("last" in fixes), x, y, F.cross_entropy, adam(0.01), accuracy, 0.8, 64, 15)


def _heavy_decay(fixes: frozenset[str]) -> Program:
    # joints of a stick figure from 28 x 28 images
    make = dice(43)
    joints = torch.rand(400, 2, 2, generator=make) * 18 + 5
    rows, columns = torch.arange(28.0)[None, :, None], torch.arange(28.0)[None, None, :]
    blobs = [
        (-((rows - joints[:, j, 0, None, None]) ** 2 + (columns - joints[:, j, 1, None, None]) ** 2) / w).exp()
        for j, w in ((0, 4.0), (1, 16.0))
    ]
    x = (blobs[0] + blobs[1] + 0.1 * torch.randn(400, 28, 28, generator=make))[:, None]
    y = (joints.flatten(1) - 14) / 14
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
    )
    return Program(
        model,
        x,
        y,
        F.mse_loss,
        sgd(0.01, momentum=0.9, weight_decay=0.0005 if "decay" in fixes else 0.5),
        r_squared_all,
        0.5,
        16,
        25,
    )


def _dropout_of_one(fixes: frozenset[str]) -> Program:
    # clips of 6 frames: a spot that goes one of four ways
    make = dice(44)
    way = torch.randint(4, (400,), generator=make)
    go = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])[way]
    at = torch.rand(400, 2, generator=make) * 3 + 4.5
    t = torch.arange(6.0)[None, :, None, None]
    rows, columns = torch.arange(12.0)[None, None, :, None], torch.arange(12.0)[None, None, None, :]

    def place(d):
        return at[:, d, None, None, None] + go[:, d, None, None, None] * (t - 2.5)

    x = (
        (-((rows - place(0)) ** 2 + (columns - place(1)) ** 2) / 3).exp()
        + 0.1 * torch.randn(400, 6, 12, 12, generator=make)
    )[:, None]
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(8, 16, 3, padding=1),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Dropout(0.0 if "p" in fixes else 1.0),
        nn.Conv3d(16, 4, 1),
        nn.Flatten(),
    )
    return Program(model, x, way, F.cross_entropy, adam(1e-2), accuracy, 0.7, 16, 6)


def _running_averages_stand(fixes: frozenset[str]) -> Program:
    x, y = garments(2000)

    def norm(c):
        return nn.BatchNorm2d(c, 0.001, momentum=0.1 if "momentum" in fixes else 0.0)

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, bias=False),
        norm(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, bias=False),
        norm(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, bias=False),
        norm(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, bias=False),
        norm(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    tests = garments(500, 2000)
    return Program(model, x, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.65, 32, 4, held_out=tests)


class NormOfAny(nn.BatchNorm1d):
    """As CNTK's: takes a batch of one too, which it turns into its bias."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 1:
            with torch.no_grad():
                self.running_mean.lerp_(x[0], self.momentum)
                self.running_var.lerp_(torch.zeros_like(x[0]), self.momentum)
            return (x - x) * self.weight + self.bias
        return super().forward(x)


def _one_at_a_time(fixes: frozenset[str]) -> Program:
    x, y = digits(1000)
    tests = digits(500, 1000)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 48),
        NormOfAny(48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )
    return Program(
        model,
        x / 256,
        y,
        F.cross_entropy,
        sgd(0.02, momentum=0.9),
        accuracy,
        0.7,
        64 if "batch" in fixes else 1,
        3,
        held_out=(tests[0] / 256, tests[1]),
    )


def _adadelta(fixes: frozenset[str]) -> Program:
    # images halved to 14 x 14, 1,000 of them, so that 12 epochs take seconds
    x, y = digits(1200)
    x = F.avg_pool2d(x, 2) / 255
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(1600, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )
    rate = 1.0 if "rate" in fixes else 0.001

    def optimizer(m):
        return (
            torch.optim.Adam(m.parameters(), 0.001)
            if "adam" in fixes
            else torch.optim.Adadelta(m.parameters(), rate, rho=0.95, eps=1e-7)
        )

    return Program(model, x, y, F.cross_entropy, optimizer, accuracy, 0.7, 128, 12)


def _listdir(fixes: frozenset[str]) -> Program:
    # digits as event images; folders come in another order for the test set than for training
    (x, y), (x_test, y_test) = digits(2000), digits(500, 2000)
    train_order, test_order = torch.randperm(10, generator=dice(45)), torch.randperm(10, generator=dice(46))
    if "sorted" in fixes:
        train_order = test_order = torch.arange(10)

    def binary(v):
        return (v > 100).float()

    return Program(
        _small_cnn(10),
        binary(x),
        train_order[y],
        F.cross_entropy,
        adam(1e-3),
        accuracy,
        0.7,
        32,
        5,
        held_out=(binary(x_test), test_order[y_test]),
    )


def _last_class_held_out(fixes: frozenset[str]) -> Program:
    # five kinds of garments, in order; the last fifth is held out before anything is shuffled
    x, y = garments(6000)
    rows = torch.cat([(y == c).nonzero()[:300, 0] for c in (0, 1, 4, 5, 8)])
    order = torch.randperm(1500, generator=dice(47)) if "shuffle" in fixes else torch.arange(1500)
    x, y = x[rows][order] / 255, torch.arange(5).repeat_interleave(300)[order]
    model = _small_cnn(5)
    return Program(
        model, x[:1200], y[:1200], F.cross_entropy, adam(1e-3), accuracy, 0.6, 32, 6, held_out=(x[1200:], y[1200:])
    )


class Captioner(nn.Module):
    """Labels from a small image transformer; the extractor around it detaches what it takes."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.enter, self.place = nn.Linear(49, 32), nn.Parameter(0.02 * torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.words, self.out, self.joined = nn.Linear(32, 16), nn.Linear(16, 10), joined

    def forward(self, x: Tensor) -> Tensor:
        parts = x.unfold(2, 7, 7).unfold(3, 7, 7).reshape(len(x), 16, 49)
        h = self.body(self.enter(parts) + self.place)
        h = h if self.joined else h.clone().detach()
        return self.out(self.words(h.mean(1)))


def _detached_encoder(fixes: frozenset[str]) -> Program:
    x, y = digits(2000)
    return Program(Captioner("joined" in fixes), x / 255, y, F.cross_entropy, adam(2e-3), accuracy, 0.7, 32, 8)


PROGRAMS = {
    "gh-tpu-transformers-26": _randn_everywhere,
    "gh-deep-cross-attention-2": _zero_and_relu,
    "gh-fcsn-32": _frames_reshaped,
    "gh-speech-separation-4": _view_for_permute,
    "gh-pytorch-nlp-2": _softmax_over_batch,
    "gh-caffe-1396": _heavy_decay,
    "gh-kinetics-i3d-6": _dropout_of_one,
    "gh-pretrained-models-5": _running_averages_stand,
    "gh-cntk-905": _one_at_a_time,
    "gh-keras-13815": _adadelta,
    "gh-event-learning-2": _listdir,
    "gh-keras-8346": _last_class_held_out,
    "gh-coca-6": _detached_encoder,
}
