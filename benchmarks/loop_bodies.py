"""Sound training programs as people write them in PyTorch: what differs is the loop body. PROGRAMS = {name: build}."""

# ruff: noqa - written as people write them, by somebody who knew neither the checks nor the code

import copy
import functools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from epoch0.data import load

PROGRAMS = {}


def program(f):
    @functools.wraps(f)
    def build():
        torch.manual_seed(0)
        return f()

    PROGRAMS[f.__name__] = build
    return f


# ---------------------------------------------------------------- data and helpers
def take(t, n):
    return tuple(v[:n] for v in t) if isinstance(t, tuple) else t[:n]


def pack(model, X, Y, loss, optimizer, step, learned, bar, n=100):
    return dict(
        model=model,
        x=take(X, n),
        y=take(Y, n),
        X=X,
        Y=Y,
        loss=loss,
        optimizer=optimizer,
        step=step,
        learned=learned,
        bar=bar,
    )


def digits(flat=True, n=800, raw=False):
    d = load("digits")
    Y = torch.from_numpy(d.labels)[:n].clone()
    if raw:
        return torch.from_numpy(d.images)[:n].clone(), Y
    X = torch.from_numpy(d.inputs("standard"))[:n].float().view(n, -1)
    return (X if flat else X.view(-1, 1, 8, 8)), Y


def blobs(n=640, d=12, k=3, spread=1.0):
    c = torch.randn(k, d) * 1.5
    y = torch.randint(k, (n,))
    return c[y] + spread * torch.randn(n, d), y


def friedman(n=640, noise=0.1):
    X = torch.rand(n, 8)
    y = 10 * torch.sin(math.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + noise * torch.randn(n)


def evaluating(f):
    @functools.wraps(f)
    def g(model, X, Y):
        was = model.training
        model.eval()
        with torch.no_grad():
            v = float(f(model, X, Y))
        model.train(was)
        return v

    return g


@evaluating
def accuracy(model, X, Y):
    return (model(X).argmax(-1) == Y).float().mean()


def r2(p, y):
    return 1 - ((p - y) ** 2).mean() / ((y - y.mean(0)) ** 2).mean()


def mlp(i, h, o, *more):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o), *more)


def cnn(o=10, c=16):
    return nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(c, 2 * c, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * c * 4, o),
    )


# ---------------------------------------------------------------- classification
@program
def mnist_view_running_loss():
    X, Y = digits(flat=False)
    model = mlp(64, 64, 10)
    history, running = [], {"loss": 0.0, "correct": 0, "total": 0}

    def step(model, optimizer, loss, x, y):
        images = x.view(x.size(0), -1)
        optimizer.zero_grad()
        outputs = model(images)
        l = loss(outputs, y)
        l.backward()
        optimizer.step()
        running["loss"] += l.item() * x.size(0)
        _, predicted = torch.max(outputs.data, 1)
        running["total"] += y.size(0)
        running["correct"] += (predicted == y).sum().item()
        history.append(running["loss"] / running["total"])
        if len(history) % 100 == 0:
            print(f"Loss: {history[-1]:.4f} Acc: {100.0 * running['correct'] / running['total']:.2f}%")

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        step,
        lambda m, X, Y: accuracy(m, X.view(len(X), -1), Y),
        0.9,
    )


@program
def cnn_uint8_nhwc_permute():
    X, Y = digits(raw=True)
    top = float(X.max())
    X = X.permute(0, 2, 3, 1).contiguous()  # stored as NHWC bytes
    model = cnn()

    def ready(x):
        return x.permute(0, 3, 1, 2).float() / top

    def step(model, optimizer, loss, x, y):
        inputs, labels = ready(x), y.long()
        optimizer.zero_grad()
        l = loss(model(inputs), labels)
        l.backward()
        optimizer.step()

    return pack(
        model,
        X,
        Y.to(torch.uint8),
        nn.CrossEntropyLoss(),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        lambda m, X, Y: accuracy(m, ready(X), Y.long()),
        0.9,
    )


@program
def cnn_random_crop():
    X, Y = digits(flat=False)
    model = cnn()

    def augment(x):
        low = float(x.min())
        padded = F.pad(x, (1, 1, 1, 1), value=low)
        i, j = torch.randint(0, 3, (2,)).tolist()
        return padded[:, :, i : i + 8, j : j + 8]

    def step(model, optimizer, loss, x, y):
        model.train()
        x = augment(x)
        out = model(x)
        l = loss(out, y)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        return l.item()

    return pack(
        model, X, Y, nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), lr=3e-3), step, accuracy, 0.85
    )


@program
def flip_textures_bn():
    n = 480
    Y = torch.randint(0, 3, (n,))
    t = torch.arange(12.0)
    waves = torch.stack([torch.sin(t * w)[None, :].expand(12, 12) for w in (0.6, 1.5, 2.6)])
    X = (waves[Y] + 0.5 * torch.randn(n, 12, 12)).unsqueeze(1)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 3),
    )

    def step(model, optimizer, loss, x, y):
        if torch.rand(1).item() < 0.5:
            x = torch.flip(x, dims=[3])
        flips = torch.rand(len(x)) < 0.5
        x = torch.where(flips[:, None, None, None], x.flip(2), x)
        optimizer.zero_grad()
        l = loss(model(x), y)
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def titanic_sigmoid_bce():
    X = torch.randn(640, 9)
    Y = ((X[:, 0] - X[:, 1] + X[:, 2] * X[:, 3] + 0.2 * torch.randn(640)) > 0).long()
    model = mlp(9, 32, 1, nn.Sigmoid())

    def step(model, optimizer, loss, x, y):
        y_pred = model(x)
        l = loss(y_pred, y.float().unsqueeze(1))
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        acc = (y_pred.round().squeeze(1) == y).float().mean().item()
        return l.item(), acc

    learned = evaluating(lambda m, X, Y: (m(X).squeeze(1).round() == Y).float().mean())
    return pack(model, X, Y, nn.BCELoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.85)


@program
def fraud_logits_squeeze_pos_weight():
    X = torch.randn(800, 10)
    Y = ((X[:, 0] + X[:, 1] ** 2 + 0.3 * torch.randn(800)) > 2.2).long()
    model = mlp(10, 32, 1)
    weight = (Y == 0).sum() / (Y == 1).sum()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad(set_to_none=True)
        logits = model(x).squeeze(-1)
        l = loss(logits, y.float())
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()

    @evaluating
    def balanced(m, X, Y):
        p = (m(X).squeeze(-1) > 0).long()
        return ((p == 1) & (Y == 1)).sum() / (Y == 1).sum() / 2 + ((p == 0) & (Y == 0)).sum() / (Y == 0).sum() / 2

    return pack(
        model,
        X,
        Y,
        nn.BCEWithLogitsLoss(pos_weight=weight),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        balanced,
        0.85,
    )


@program
def body_sigmoid_then_bce():
    X, Y = blobs(640, 8, 2)
    model = mlp(8, 24, 1)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        prob = torch.sigmoid(model(x)).view(-1)
        l = F.binary_cross_entropy(prob, y.type(torch.float32))
        l.backward()
        optimizer.step()
        assert not torch.isnan(l)

    learned = evaluating(lambda m, X, Y: ((m(X).view(-1) > 0).long() == Y).float().mean())
    return pack(model, X, Y, None, torch.optim.RMSprop(model.parameters(), lr=2e-3), step, learned, 0.9)


@program
def onehot_softmax_mse():
    X, Y = digits()
    model = mlp(64, 64, 10)

    def step(model, optimizer, loss, x, y):
        target = F.one_hot(y, num_classes=10).float()
        prob = F.softmax(model(x), dim=1)
        l = loss(prob, target)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def log_softmax_nll_body():
    X, Y = digits()
    model = mlp(64, 64, 10)

    def step(model, optimizer, loss, x, y):
        model.zero_grad()
        scores = F.log_softmax(model(x), dim=1)
        l = loss(scores, y)
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.NLLLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def label_smoothing_by_hand():
    X, Y = digits()
    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Dropout(0.2), nn.Linear(96, 10))
    eps = 0.1

    def step(model, optimizer, loss, x, y):
        pred = model(x)
        n_class = pred.size(1)
        one_hot = torch.zeros_like(pred).scatter(1, y.view(-1, 1), 1)
        one_hot = one_hot * (1 - eps) + (1 - one_hot) * eps / (n_class - 1)
        log_prb = F.log_softmax(pred, dim=1)
        l = -(one_hot * log_prb).sum(dim=1).mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, None, torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def class_weights_per_batch():
    X, Y = blobs(1500, 10, 3)
    keep = torch.cat([(Y == 0).nonzero()[:450, 0], (Y == 1).nonzero()[:200, 0], (Y == 2).nonzero()[:70, 0]])
    keep = keep[torch.randperm(len(keep))]
    X, Y = X[keep], Y[keep]
    weights = len(Y) / (3 * torch.bincount(Y).float())
    model = mlp(10, 32, 3)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        per_sample = loss(model(x), y)  # reduction='none'
        w = weights[y]
        l = (per_sample * w).sum() / w.sum()
        l.backward()
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        accuracy,
        0.9,
    )


@program
def mixup():
    X, Y = digits()
    model = mlp(64, 96, 10)
    beta = torch.distributions.Beta(0.4, 0.4)

    def step(model, optimizer, loss, x, y):
        lam = beta.sample().item()
        index = torch.randperm(x.size(0))
        mixed_x = lam * x + (1 - lam) * x[index, :]
        y_a, y_b = y, y[index]
        outputs = model(mixed_x)
        l = lam * loss(outputs, y_a) + (1 - lam) * loss(outputs, y_b)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def cutmix():
    X, Y = digits(flat=False)
    model = cnn()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        if torch.rand(1).item() < 0.5:
            rand_index = torch.randperm(x.size(0))
            w, h = torch.randint(1, 5, (2,)).tolist()
            i, j = int(torch.randint(0, 9 - h, ())), int(torch.randint(0, 9 - w, ()))
            x = x.clone()
            x[:, :, i : i + h, j : j + w] = x[rand_index, :, i : i + h, j : j + w]
            lam = 1 - w * h / 64
            out = model(x)
            l = loss(out, y) * lam + loss(out, y[rand_index]) * (1.0 - lam)
        else:
            l = loss(model(x), y)
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=4e-3), step, accuracy, 0.85)


@program
def focal_loss_in_body():
    X, Y = blobs(640, 10, 4)
    model = mlp(10, 32, 4)
    gamma, alpha = 2.0, 1.0

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        ce = F.cross_entropy(model(x), y, reduction="none")
        pt = torch.exp(-ce)
        l = (alpha * (1 - pt) ** gamma * ce).mean()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, None, torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def multilabel_threshold_f1():
    X = torch.randn(640, 12)
    Y = (X @ torch.randn(12, 6) + 0.3 * torch.randn(640, 6) > 0).int()
    model = mlp(12, 48, 6)
    f1s = []

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        out = model(x)
        l = loss(out, y.to(out.dtype))
        l.backward()
        optimizer.step()
        with torch.no_grad():
            pred = (torch.sigmoid(out) > 0.5).int()
            tp = (pred * y).sum().item()
            f1s.append(2 * tp / max(1, pred.sum().item() + y.sum().item()))

    learned = evaluating(lambda m, X, Y: ((m(X) > 0).int() == Y).float().mean())
    return pack(model, X, Y, nn.BCEWithLogitsLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, learned, 0.88)


@program
def ordinal_cumulative_targets():
    X = torch.randn(640, 8)
    s = X[:, 0] + 0.7 * X[:, 1] - 0.5 * X[:, 2] * X[:, 3]
    Y = torch.bucketize(s, torch.tensor([-1.2, -0.3, 0.3, 1.2]))
    model = mlp(8, 32, 4)

    def step(model, optimizer, loss, x, y):
        levels = (y.unsqueeze(1) > torch.arange(4)).float()
        l = loss(model(x), levels)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: ((m(X) > 0).sum(1) - Y).abs().le(0).float().mean())
    return pack(model, X, Y, nn.BCEWithLogitsLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.7)


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.weight = nn.Parameter(torch.randn(10, 16) * 0.25)

    def forward(self, x):
        return F.linear(F.normalize(self.body(x)), F.normalize(self.weight))


@program
def arcface_margin_in_body():
    X, Y = digits()
    model = Cosine()

    def step(model, optimizer, loss, x, y):
        cosine = model(x)
        margin = torch.zeros_like(cosine).scatter_(1, y.view(-1, 1), 0.2)
        l = loss(16.0 * (cosine - margin), y)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


# ---------------------------------------------------------------- sequences
class Tagger(nn.Module):
    def __init__(self, v=20, c=3):
        super().__init__()
        self.emb = nn.Embedding(v, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, c)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def tagging(n=480, T=10, v=20, pad=-100):
    X = torch.randint(1, v, (n, T))
    lengths = torch.randint(4, T + 1, (n,))
    prev = torch.cat([torch.ones(n, 1, dtype=torch.long), X[:, :-1]], 1)
    Y = (X + prev > v).long() + (X % 2) * (X > prev)
    off = torch.arange(T)[None] >= lengths[:, None]
    return X.masked_fill(off, 0), Y.masked_fill(off, pad), lengths


@evaluating
def tagged(m, X, Y):
    keep = X != 0
    return (m(X).argmax(-1) == Y)[keep].float().mean()


@program
def tagger_masked_select():
    X, Y, _ = tagging(pad=0)
    model = Tagger()

    def step(model, optimizer, loss, x, y):
        mask = x != 0
        optimizer.zero_grad()
        out = model(x)
        l = loss(out[mask], y[mask])
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, tagged, 0.85)


@program
def tagger_ignore_index_view():
    X, Y, _ = tagging()
    model = Tagger()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        out = model(x)
        l = loss(out.view(-1, out.shape[-1]), y.view(-1))
        l.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(ignore_index=-100),
        torch.optim.Adam(model.parameters(), lr=1e-2),
        step,
        tagged,
        0.85,
    )


class PackedLSTM(nn.Module):
    def __init__(self, v=16):
        super().__init__()
        self.emb = nn.Embedding(v, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, text, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.emb(text), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (h, _) = self.lstm(packed)
        return self.fc(h[-1])


@program
def sentiment_packed_lengths():
    n, T = 480, 12
    X = torch.randint(1, 16, (n, T))
    lengths = torch.randint(3, T + 1, (n,))
    X = X.masked_fill(torch.arange(T)[None] >= lengths[:, None], 0)
    good = ((X > 10).sum(1) > ((X > 0) & (X < 6)).sum(1)).float()
    model = PackedLSTM()

    def step(model, optimizer, loss, x, y):
        text, text_lengths = x
        optimizer.zero_grad()
        predictions = model(text, text_lengths).squeeze(1)
        l = loss(predictions, y)
        rounded = torch.round(torch.sigmoid(predictions))
        acc = (rounded == y).float().sum() / len(y)
        l.backward()
        optimizer.step()
        return l.item(), acc.item()

    learned = evaluating(lambda m, X, Y: ((m(*X).squeeze(1) > 0).float() == Y).float().mean())
    return pack(
        model,
        (X, lengths),
        good,
        nn.BCEWithLogitsLoss(),
        torch.optim.Adam(model.parameters(), lr=1e-2),
        step,
        learned,
        0.88,
    )


class Recognizer(nn.Module):
    def __init__(self, k=5):
        super().__init__()
        self.conv = nn.Conv1d(8, 32, 3, padding=1)
        self.rnn = nn.GRU(32, 24, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(48, k)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.fc(self.rnn(h)[0])


@program
def ctc_with_lengths():
    n, L, k = 400, 4, 4
    codes = torch.randn(k + 1, 8) * 1.5
    labels = torch.randint(1, k + 1, (n, L))
    target_lengths = torch.randint(2, L + 1, (n,))
    labels = labels.masked_fill(torch.arange(L)[None] >= target_lengths[:, None], 0)
    X = torch.zeros(n, 4 * L, 8)
    for t in range(L):
        X[:, 4 * t + 1 : 4 * t + 3] = codes[labels[:, t]].unsqueeze(1) * (labels[:, t] > 0)[:, None, None]
    X = X + 0.3 * torch.randn_like(X)
    input_lengths = target_lengths * 4
    model = Recognizer(k + 1)

    def step(model, optimizer, loss, x, y):
        spectrograms, in_len = x
        labels, lab_len = y
        optimizer.zero_grad()
        output = model(spectrograms)
        output = F.log_softmax(output, dim=2).transpose(0, 1)  # (time, batch, n_class)
        l = loss(output, labels, in_len, lab_len)
        l.backward()
        optimizer.step()

    @evaluating
    def exact(m, X, Y):
        best, right = m(X[0]).argmax(-1), 0
        for b, il, t, tl in zip(best, X[1], Y[0], Y[1]):
            c = torch.unique_consecutive(b[:il])
            right += c[c != 0].tolist() == t[:tl].tolist()
        return right / len(best)

    return pack(
        model,
        (X, input_lengths),
        (labels, target_lengths),
        nn.CTCLoss(blank=0, zero_infinity=True),
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        step,
        exact,
        0.7,
    )


class Seq2Seq(nn.Module):
    def __init__(self, v=8, h=48):
        super().__init__()
        self.src, self.tgt = nn.Embedding(v, 16), nn.Embedding(v + 1, 16)
        self.encoder, self.decoder = nn.GRU(16, h, batch_first=True), nn.GRU(16, h, batch_first=True)
        self.out = nn.Linear(h, v)

    def forward(self, src, dec_in):
        _, h = self.encoder(self.src(src))
        return self.out(self.decoder(self.tgt(dec_in), h)[0])


@program
def seq2seq_teacher_forcing():
    X = torch.randint(0, 8, (640, 4))
    Y = torch.cat([torch.full((640, 1), 8), X.flip(1)], 1)  # SOS, then reversed
    model = Seq2Seq()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        output = model(x, y[:, :-1])
        output_dim = output.shape[-1]
        output = output.contiguous().view(-1, output_dim)
        trg = y[:, 1:].contiguous().view(-1)
        l = loss(output, trg)
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()

    learned = evaluating(lambda m, X, Y: (m(X, Y[:, :-1]).argmax(-1) == Y[:, 1:]).float().mean())
    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, learned, 0.8)


class Decoder(nn.Module):
    """One token at a time, as in the PyTorch translation tutorial."""

    def __init__(self, v=6, h=32):
        super().__init__()
        self.embedding, self.encoder, self.cell = (
            nn.Embedding(v + 1, h),
            nn.GRU(h, h, batch_first=True),
            nn.GRUCell(h, h),
        )
        self.out = nn.Linear(h, v)

    def encode(self, x):
        return self.encoder(self.embedding(x))[1][0]

    def forward(self, token, hidden):
        hidden = self.cell(F.relu(self.embedding(token)), hidden)
        return self.out(hidden), hidden


@program
def seq2seq_scheduled_sampling_loop():
    X = torch.randint(0, 6, (600, 3))
    Y = torch.cumsum(X, 1) % 6
    model = Decoder()

    def decode(model, x, y, ratio, loss=None):
        hidden, token, total, outs = model.encode(x), torch.full((len(x),), 6), 0, []
        for t in range(y.size(1)):
            output, hidden = model(token, hidden)
            outs.append(output.argmax(1))
            if loss is not None:
                total = total + loss(output, y[:, t])
            token = y[:, t] if torch.rand(()).item() < ratio else outs[-1].detach()
        return total, torch.stack(outs, 1)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l, _ = decode(model, x, y, 0.7, loss)
        (l / y.size(1)).backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: (decode(m, X, Y, 0.0)[1] == Y).float().mean())
    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, learned, 0.75)


def markov(n=480, T=17, v=12):
    perm = torch.randperm(v)
    X = torch.zeros(n, T, dtype=torch.long)
    X[:, 0] = torch.randint(v, (n,))
    for t in range(1, T):
        X[:, t] = torch.where(torch.rand(n) < 0.9, perm[X[:, t - 1]], torch.randint(v, (n,)))
    return X


class CharRNN(nn.Module):
    def __init__(self, v=12, h=32):
        super().__init__()
        self.h, self.emb, self.lstm, self.fc = h, nn.Embedding(v, 16), nn.LSTM(16, h, batch_first=True), nn.Linear(h, v)

    def forward(self, x, hidden=None):
        out, hidden = self.lstm(self.emb(x), hidden)
        return self.fc(out), hidden

    def init_hidden(self, b):
        return torch.zeros(1, b, self.h), torch.zeros(1, b, self.h)


@evaluating
def next_token(m, X, Y):
    out = m(X[:, :-1])
    out = out[0] if isinstance(out, tuple) else out
    return (out.argmax(-1) == X[:, 1:]).float().mean()


@program
def char_lm_hidden_detached():
    X = markov()
    model = CharRNN()
    state = {"hidden": None}

    def step(model, optimizer, loss, x, y):
        if state["hidden"] is None or state["hidden"][0].size(1) != x.size(0):
            state["hidden"] = model.init_hidden(x.size(0))
        hidden = tuple(h.detach() for h in state["hidden"])
        model.zero_grad()
        output, hidden = model(x[:, :-1], hidden)
        l = loss(output.reshape(-1, output.size(-1)), y[:, 1:].reshape(-1))
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        state["hidden"] = hidden

    return pack(
        model, X, X.clone(), nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, next_token, 0.8
    )


class GPT(nn.Module):
    def __init__(self, v=12, d=24, T=17):
        super().__init__()
        self.tok, self.pos = nn.Embedding(v, d), nn.Embedding(T, d)
        self.block = nn.TransformerEncoderLayer(d, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)

    def forward(self, idx):
        T = idx.size(1)
        mask = torch.triu(torch.full((T, T), float("-inf")), 1)
        return self.head(self.norm(self.block(self.tok(idx) + self.pos(torch.arange(T)), src_mask=mask)))


@program
def gpt_shift_labels_perplexity():
    X = markov()
    model = GPT()

    def step(model, optimizer, loss, x, y):
        logits = model(x)
        shift_logits = logits[..., :-1, :].contiguous()
        shift_labels = x[..., 1:].contiguous()
        l = F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))
        optimizer.zero_grad(set_to_none=True)
        l.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return math.exp(l.item())

    return pack(
        model,
        X,
        X.clone(),
        None,
        torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95)),
        step,
        next_token,
        0.8,
    )


@program
def bert_mask_tokens_in_body():
    X = markov(480, 12)
    v, d = 12, 24

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(v + 1, d), nn.Parameter(0.02 * torch.randn(1, 12, d))
            self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 48, dropout=0.0, batch_first=True), 2)
            self.head = nn.Linear(d, v)

        def forward(self, ids):
            return self.head(self.enc(self.tok(ids) + self.pos))

    model = Bert()

    def step(model, optimizer, loss, x, y):
        labels = y.clone()
        masked = torch.rand(x.shape) < 0.2
        labels[~masked] = -100
        inputs = x.masked_fill(masked, v)
        optimizer.zero_grad()
        out = model(inputs)
        l = loss(out.transpose(1, 2), labels)
        l.backward()
        optimizer.step()

    @evaluating
    def fill(m, X, Y):
        ids = X.clone()
        ids[:, 6] = v
        return (m(ids)[:, 6].argmax(-1) == Y[:, 6]).float().mean()

    return pack(
        model, X, X.clone(), nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, fill, 0.6
    )


@program
def timeseries_lstm_unsqueeze_last():
    n, T = 600, 20
    ph, fr = torch.rand(n, 1) * 6.28, 0.2 + 0.4 * torch.rand(n, 1)
    wave = torch.sin(ph + fr * torch.arange(T + 1.0)) + 0.05 * torch.randn(n, T + 1)
    X, Y = wave[:, :T], wave[:, T]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x):
            return self.linear(self.lstm(x)[0][:, -1])

    model = Net()

    def step(model, optimizer, loss, x, y):
        seq = x.unsqueeze(-1)
        optimizer.zero_grad()
        y_pred = model(seq)
        l = loss(y_pred, y.view(-1, 1))
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X.unsqueeze(-1)).view(-1), Y))
    return pack(model, X, Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, learned, 0.9)


@program
def sensor_conv1d_permute_float64():
    n, T, C = 480, 24, 4
    Y = torch.randint(0, 3, (n,))
    t = torch.arange(T).float()
    X = torch.randn(n, T, C) * 0.6
    X[:, :, 0] += torch.sin(t * torch.tensor([0.5, 1.0, 1.8])[Y].unsqueeze(1) + 6.28 * torch.rand(n, 1))
    model = nn.Sequential(
        nn.Conv1d(C, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv1d(16, 16, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    X = X.double()  # as it comes out of pandas

    def step(model, optimizer, loss, x, y):
        x = x.permute(0, 2, 1).float()
        out = model(x)
        l = loss(out, y)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        lambda m, X, Y: accuracy(m, X.permute(0, 2, 1).float(), Y),
        0.88,
    )


# ---------------------------------------------------------------- many heads
class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
        self.cls, self.reg = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.cls(h), self.reg(h).squeeze(-1)


@program
def multitask_weighted_sum():
    X, Y = blobs(640, 10, 3)
    target = X[:, 0] * 0.5 + torch.tanh(X[:, 1]) + 0.1 * torch.randn(640)
    model = TwoHeads()

    def step(model, optimizer, loss, x, y):
        label, value = y
        logits, pred = model(x)
        loss1 = F.cross_entropy(logits, label)
        loss2 = F.smooth_l1_loss(pred, value)
        total = 1.0 * loss1 + 0.5 * loss2
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return {"cls": loss1.item(), "reg": loss2.item()}

    @evaluating
    def both(m, X, Y):
        a, b = m(X)
        return min(float((a.argmax(1) == Y[0]).float().mean()), float(r2(b, Y[1])))

    return pack(model, X, (Y, target), None, torch.optim.Adam(model.parameters(), lr=5e-3), step, both, 0.85)


@program
def multitask_learned_uncertainty():
    X, Y = blobs(640, 10, 3)
    target = 5 * (X[:, 0] * 0.5 + torch.tanh(X[:, 1])) + 0.1 * torch.randn(640)
    model = TwoHeads()
    model.log_vars = nn.Parameter(torch.zeros(2))

    def step(model, optimizer, loss, x, y):
        logits, pred = model(x)
        l1, l2 = F.cross_entropy(logits, y[0]), F.mse_loss(pred, y[1])
        l = (
            torch.exp(-model.log_vars[0]) * l1
            + model.log_vars[0]
            + 0.5 * torch.exp(-model.log_vars[1]) * l2
            + 0.5 * model.log_vars[1]
        )
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    @evaluating
    def both(m, X, Y):
        a, b = m(X)
        return min(float((a.argmax(1) == Y[0]).float().mean()), float(r2(b, Y[1])))

    return pack(model, X, (Y, target), None, torch.optim.Adam(model.parameters(), lr=5e-3), step, both, 0.85)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.b = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.aux, self.fc = nn.Sequential(nn.Flatten(), nn.Linear(256, 10)), nn.Linear(128, 10)

    def forward(self, x):
        h = self.a(x)
        out = self.fc(self.b(h))
        return (out, self.aux(h)) if self.training else out


@program
def auxiliary_head_inception():
    X, Y = digits(flat=False)
    model = Inception()

    def step(model, optimizer, loss, x, y):
        model.train()
        optimizer.zero_grad()
        with torch.set_grad_enabled(True):
            outputs, aux_outputs = model(x)
            loss1 = loss(outputs, y)
            loss2 = loss(aux_outputs, y)
            l = loss1 + 0.4 * loss2
            _, preds = torch.max(outputs, 1)
            l.backward()
            optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        step,
        accuracy,
        0.88,
    )


# ---------------------------------------------------------------- images out
def discs(n=400, s=16):
    g = torch.arange(float(s))
    cx, cy, r = [4 + (s - 8) * torch.rand(n, 1, 1) for _ in range(2)] + [2 + 2.5 * torch.rand(n, 1, 1)]
    mask = (((g[None, None] - cx) ** 2 + (g[None, :, None] - cy) ** 2) < r**2).float()
    X = (mask * (0.8 + 0.2 * torch.rand(n, 1, 1)) + 0.3 * torch.randn(n, s, s)).unsqueeze(1)
    boxes = torch.cat([cx, cy, r], 1).squeeze(-1) / s
    return X, mask, boxes


class UNet(nn.Module):
    def __init__(self, out=1, deep=False, full=True):
        super().__init__()
        self.e1 = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.e2 = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.side = nn.Conv2d(16, out, 1) if deep or not full else None
        self.d1 = nn.Sequential(nn.Conv2d(24, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, out, 1)) if full else None

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(a)
        if self.d1 is None:
            return self.side(b)
        full = self.d1(torch.cat([a, F.interpolate(b, scale_factor=2, mode="nearest")], 1))
        return (full, self.side(b)) if self.side is not None and self.training else full


def dice_loss(pred, target, smooth=1.0):
    pred, target = pred.contiguous().view(pred.size(0), -1), target.contiguous().view(target.size(0), -1)
    inter = (pred * target).sum(1)
    return (1 - (2.0 * inter + smooth) / (pred.sum(1) + target.sum(1) + smooth)).mean()


@program
def unet_bce_plus_dice():
    X, M, _ = discs()
    model = UNet()

    def step(model, optimizer, loss, x, y):
        masks_pred = model(x)
        l = loss(masks_pred.squeeze(1), y.float())
        l += dice_loss(torch.sigmoid(masks_pred.squeeze(1)), y.float())
        optimizer.zero_grad(set_to_none=True)
        l.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    learned = evaluating(lambda m, X, Y: 1 - dice_loss((m(X).squeeze(1) > 0).float(), Y.float()))
    return pack(
        model,
        X,
        M.to(torch.uint8),
        nn.BCEWithLogitsLoss(),
        torch.optim.Adam(model.parameters(), lr=5e-3),
        step,
        learned,
        0.85,
    )


@program
def segmentation_interpolate_ce_plus_dice():
    X, M, _ = discs()
    model = UNet(out=2, full=False)  # logits at half the size

    def step(model, optimizer, loss, x, y):
        out = model(x)
        out = F.interpolate(out, size=y.shape[-2:], mode="bilinear", align_corners=False)
        l = loss(out, y.long()) + dice_loss(F.softmax(out, dim=1)[:, 1], y)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(
        lambda m, X, Y: (
            1
            - dice_loss(
                F.interpolate(m(X), size=Y.shape[-2:], mode="bilinear", align_corners=False).argmax(1).float(), Y
            )
        )
    )
    return pack(model, X, M, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.8)


@program
def deep_supervision():
    X, M, _ = discs()
    model = UNet(deep=True)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        outputs, target, l = model(x), y.unsqueeze(1), 0
        for w, out in zip((1.0, 0.5), outputs):
            l = l + w * loss(out, F.interpolate(target, size=out.shape[2:], mode="nearest"))
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: 1 - dice_loss((m(X).squeeze(1) > 0).float(), Y))
    return pack(model, X, M, nn.BCEWithLogitsLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.8)


@program
def detection_boxes_and_classes():
    X, M, B = discs(480)
    has = torch.rand(480) < 0.6
    X = torch.where(has[:, None, None, None], X, 0.3 * torch.randn_like(X))
    B = B * has[:, None]
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 48),
        nn.ReLU(),
        nn.Linear(48, 5),
    )

    def step(model, optimizer, loss, x, y):
        boxes, labels = y
        out = model(x)
        pred_boxes, pred_cls = out[:, :3], out[:, 3:]
        loss_cls = F.cross_entropy(pred_cls, labels)
        pos = labels > 0
        loss_box = F.l1_loss(pred_boxes[pos], boxes[pos], reduction="sum") / pos.sum().clamp(min=1)
        l = loss_cls + 2.0 * loss_box
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    @evaluating
    def both(m, X, Y):
        out, pos = m(X), Y[1] > 0
        return min(float((out[:, 3:].argmax(1) == Y[1]).float().mean()), float(r2(out[pos, :3], Y[0][pos])))

    return pack(net, X, (B, has.long()), None, torch.optim.Adam(net.parameters(), lr=3e-3), step, both, 0.8)


@program
def keypoint_heatmaps_made_in_body():
    X, _, B = discs(400)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 1, 1)
    )
    P = B[:, :2] * 16
    g = torch.arange(16.0)

    def step(model, optimizer, loss, x, y):
        gauss = torch.exp(
            -((g[None, None] - y[:, 0, None, None]) ** 2 + (g[None, :, None] - y[:, 1, None, None]) ** 2) / 8
        )
        optimizer.zero_grad()
        l = loss(model(x).squeeze(1), gauss)
        l.backward()
        optimizer.step()

    @evaluating
    def near(m, X, Y):
        i = m(X).flatten(1).argmax(1)
        return (((torch.stack([i % 16, i // 16], 1)) - Y).norm(dim=1) < 2).float().mean()

    return pack(model, X, P, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, near, 0.8)


# ---------------------------------------------------------------- representation and generation
def embedded_1nn(embed):
    @evaluating
    def f(m, X, Y):
        z = F.normalize(embed(m, X), dim=1)
        near = (z @ z.T).fill_diagonal_(-9).argmax(1)
        return (Y[near] == Y).float().mean()

    return f


@program
def triplets_from_batch():
    X, Y = digits()
    model = mlp(64, 64, 8)

    def step(model, optimizer, loss, x, y):
        same = y[:, None] == y[None]
        eye = torch.eye(len(y), dtype=torch.bool)
        ok = (same & ~eye).any(1) & (~same).any(1)
        pos = torch.multinomial((same & ~eye)[ok].float(), 1).squeeze(1)
        neg = torch.multinomial((~same)[ok].float(), 1).squeeze(1)
        anchor = x[ok]
        optimizer.zero_grad()
        l = loss(model(anchor), model(x[pos]), model(x[neg]))
        l.backward()
        optimizer.step()

    @evaluating
    def separation(m, X, Y):
        d, same = torch.cdist(m(X), m(X)), Y[:, None] == Y[None]
        return 1 - d[same].mean() / d[~same].mean()

    return pack(
        model,
        X,
        Y,
        nn.TripletMarginLoss(margin=1.0),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        separation,
        0.65,
    )


@program
def simclr_two_views():
    X, Y = digits()
    model = mlp(64, 64, 16)

    def view(x):
        return (x + 0.2 * torch.randn_like(x)) * (torch.rand_like(x) > 0.1)

    def step(model, optimizer, loss, x, y):
        z = F.normalize(model(torch.cat([view(x), view(x)])), dim=1)
        n = len(x)
        sim = z @ z.t() / 0.2
        sim.masked_fill_(torch.eye(2 * n, dtype=torch.bool), -1e9)
        labels = torch.cat([torch.arange(n) + n, torch.arange(n)])
        l = loss(sim, labels)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    @evaluating
    def matched(m, X, Y):
        torch.manual_seed(1)
        a, b = F.normalize(m(view(X[:200]))), F.normalize(m(view(X[:200])))
        return ((a @ b.T).argmax(1) == torch.arange(200)).float().mean()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, matched, 0.5)


@program
def siamese_contrastive_pairs():
    X, Y = digits()
    i, j = torch.randint(800, (800,)), torch.randint(800, (800,))
    half = torch.arange(800) % 2 == 0
    j = torch.where(half, torch.multinomial((Y[i][:, None] == Y[None]).float(), 1).squeeze(1), j)
    same = (Y[i] == Y[j]).float()
    model = mlp(64, 64, 8)

    def step(model, optimizer, loss, x, y):
        img0, img1 = x
        out0, out1 = model(img0), model(img1)
        d = F.pairwise_distance(out0, out1)
        l = torch.mean(y * d.pow(2) + (1 - y) * torch.clamp(2.0 - d, min=0).pow(2))
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: ((F.pairwise_distance(m(X[0]), m(X[1])) < 1).float() == Y).float().mean())
    return pack(model, (X[i], X[j]), same, None, torch.optim.Adam(model.parameters(), lr=2e-3), step, learned, 0.88)


@program
def autoencoder_ignores_labels():
    X, Y = digits(raw=True)
    X = X.float() / float(X.max())
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 12),
        nn.Linear(12, 32),
        nn.ReLU(),
        nn.Linear(32, 64),
        nn.Sigmoid(),
    )

    def step(model, optimizer, loss, x, y):
        img, _ = x, y
        img = img.view(img.size(0), -1)
        recon = model(img)
        l = loss(recon, img)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X), X.flatten(1)))
    return pack(model, X, Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.5)


@program
def denoising_autoencoder():
    X, _ = digits(raw=True)
    X = X.float() / float(X.max())
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 1, 3, padding=1),
    )

    def step(model, optimizer, loss, x, y):
        noisy = (x + 0.3 * torch.randn(x.size())).clamp(0.0, 1.0)
        optimizer.zero_grad()
        out = model(noisy)
        l = loss(out, y)
        l.backward()
        optimizer.step()

    @evaluating
    def gain(m, X, Y):
        torch.manual_seed(1)
        noisy = (X + 0.3 * torch.randn(X.size())).clamp(0.0, 1.0)
        return 1 - F.mse_loss(m(noisy), Y) / F.mse_loss(noisy, Y)

    return pack(model, X, X.clone(), nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, gain, 0.4)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.mu, self.logvar = nn.Linear(64, 48), nn.Linear(48, 6), nn.Linear(48, 6)
        self.fc3, self.fc4 = nn.Linear(6, 48), nn.Linear(48, 64)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


@program
def vae_bce_sum_kld():
    X, Y = digits(raw=True)
    X = X.float() / float(X.max())
    model = VAE()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        data = x.view(-1, 64)
        recon, mu, logvar = model(data)
        bce = F.binary_cross_entropy(recon, data, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        l = bce + kld
        l.backward()
        optimizer.step()
        return l.item() / len(x)

    learned = evaluating(lambda m, X, Y: r2(m(X.view(-1, 64))[0], X.view(-1, 64)))
    return pack(model, X, Y, None, torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.25)


@program
def diffusion_noise_and_timestep():
    n = 800
    a = 6.28 * torch.rand(n)
    X = torch.stack([a.cos(), a.sin()], 1) + 0.02 * torch.randn(n, 2)
    abar = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 30), 0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t, self.net = nn.Embedding(30, 16), mlp(18, 64, 2)

        def forward(self, x, t):
            return self.net(torch.cat([x, self.t(t)], 1))

    model = Net()

    def noised(x):
        t = torch.randint(0, 30, (len(x),))
        noise = torch.randn_like(x)
        return t, noise, abar[t].sqrt()[:, None] * x + (1 - abar[t]).sqrt()[:, None] * noise

    def step(model, optimizer, loss, x, y):
        t, noise, xt = noised(x)
        l = loss(model(xt, t), noise)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    @evaluating
    def explained(m, X, Y):
        torch.manual_seed(1)
        t, noise, xt = noised(X)
        return r2(m(xt, t), noise)

    return pack(
        model, X, torch.zeros(n), nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, explained, 0.55
    )


@program
def bandit_reinforce():
    X, Y = blobs(640, 8, 4)
    model = mlp(8, 32, 4)
    state = {"baseline": 0.25}

    def step(model, optimizer, loss, x, y):
        policy = torch.distributions.Categorical(logits=model(x))
        action = policy.sample()
        reward = (action == y).float()
        advantage = reward - state["baseline"]
        l = -(policy.log_prob(action) * advantage).mean() - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        state["baseline"] = 0.9 * state["baseline"] + 0.1 * reward.mean().item()

    return pack(model, X, Y, None, torch.optim.Adam(model.parameters(), lr=5e-3), step, accuracy, 0.85)


@program
def dqn_target_network():
    n, A = 800, 3
    W = torch.randn(6, A)
    s, s2 = torch.randn(n, 6), torch.randn(n, 6)
    a = torch.randint(A, (n, 1))
    r = (torch.tanh(s @ W)).gather(1, a) + 0.05 * torch.randn(n, 1)
    done = (torch.rand(n, 1) < 0.5).float()
    model = mlp(6, 48, A)
    target = copy.deepcopy(model)

    def step(model, optimizer, loss, x, y):
        state, action, next_state, over = x
        q = model(state).gather(1, action)
        with torch.no_grad():
            backup = y + 0.5 * (1 - over) * target(next_state).max(1, keepdim=True)[0]
        l = loss(q, backup)
        optimizer.zero_grad()
        l.backward()
        for p in model.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        for tp, p in zip(target.parameters(), model.parameters()):
            tp.data.copy_(0.95 * tp.data + 0.05 * p.data)

    @evaluating
    def greedy(m, X, Y):
        return ((X[0] @ W).argmax(1) == m(X[0]).argmax(1)).float().mean()

    return pack(
        model, (s, a, s2, done), r, nn.SmoothL1Loss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, greedy, 0.75
    )


# ---------------------------------------------------------------- regression
@program
def housing_standardized_targets():
    X, y = friedman()
    Y = 200000 + 30000 * y
    mean, std = Y.mean(), Y.std()
    model = mlp(8, 48, 1)

    def step(model, optimizer, loss, x, y):
        target = ((y - mean) / std).unsqueeze(1)
        optimizer.zero_grad()
        l = loss(model(x), target)
        l.backward()
        optimizer.step()
        rmse = l.item() ** 0.5 * std.item()
        return rmse

    learned = evaluating(lambda m, X, Y: r2(m(X).squeeze(1) * std + mean, Y))
    return pack(model, X, Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.85)


@program
def house_prices_log1p():
    X = torch.randn(640, 10)
    Y = torch.exp(1.5 + 0.6 * X[:, 0] + 0.5 * torch.tanh(X[:, 1]) + 0.3 * X[:, 2] * X[:, 3] + 0.1 * torch.randn(640))
    model = mlp(10, 48, 1)

    def step(model, optimizer, loss, x, y):
        pred = model(x).flatten()
        l = torch.sqrt(loss(pred, torch.log1p(y)))
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X).flatten(), torch.log1p(Y)))
    return pack(model, X, Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.85)


@program
def poisson_counts_exp():
    X = torch.randn(800, 6)
    rate = torch.exp(0.8 + 0.6 * X[:, 0] - 0.5 * X[:, 1] + 0.3 * X[:, 2])
    Y = torch.poisson(rate)
    model = mlp(6, 32, 1)

    def step(model, optimizer, loss, x, y):
        log_rate = model(x)[:, 0]
        l = (torch.exp(log_rate) - y * log_rate).mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X)[:, 0].exp(), Y))
    return pack(model, X, Y, None, torch.optim.Adam(model.parameters(), lr=3e-3), step, learned, 0.6)


@program
def quantile_three_heads():
    X = torch.rand(800, 3) * 2 - 1
    Y = torch.sin(3 * X[:, 0]) + X[:, 1] + (0.1 + 0.3 * X[:, 2].abs()) * torch.randn(800)
    model = mlp(3, 48, 3)
    quantiles = [0.1, 0.5, 0.9]

    def pinball(preds, target):
        losses = []
        for i, q in enumerate(quantiles):
            errors = target - preds[:, i]
            losses.append(torch.max((q - 1) * errors, q * errors).unsqueeze(1))
        return torch.mean(torch.sum(torch.cat(losses, dim=1), dim=1))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = pinball(model(x), y)
        l.backward()
        optimizer.step()

    learned = evaluating(
        lambda m, X, Y: r2(m(X)[:, 1], Y) - ((m(X) > Y[:, None]).float().mean(0) - torch.tensor(quantiles)).abs().mean()
    )
    return pack(model, X, Y, None, torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.7)


@program
def gaussian_nll_heads():
    X = torch.rand(800, 3) * 2 - 1
    Y = torch.sin(3 * X[:, 0]) + X[:, 1] + (0.1 + 0.3 * X[:, 2].abs()) * torch.randn(800)
    model = mlp(3, 48, 2)

    def step(model, optimizer, loss, x, y):
        out = model(x)
        mean, var = out[:, 0], F.softplus(out[:, 1]) + 1e-4
        l = loss(mean, y, var)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X)[:, 0], Y))
    return pack(model, X, Y, nn.GaussianNLLLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.75)


class MF(nn.Module):
    def __init__(self, users=40, items=30, k=4):
        super().__init__()
        self.u, self.i, self.bu, self.bi = (
            nn.Embedding(users, k),
            nn.Embedding(items, k),
            nn.Embedding(users, 1),
            nn.Embedding(items, 1),
        )
        for e in (self.u, self.i, self.bu, self.bi):
            nn.init.normal_(e.weight, std=0.3)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(1) + self.bu(u).squeeze(1) + self.bi(i).squeeze(1)


@program
def movielens_factorization_l2_by_hand():
    u, i = torch.randint(40, (800,)), torch.randint(30, (800,))
    U, V = torch.randn(40, 2), torch.randn(30, 2)
    rating = 3.5 + 0.6 * (U[u] * V[i]).sum(1) + 0.5 * torch.randn(40)[u] + 0.1 * torch.randn(800)
    model = MF()
    mu = rating.mean().item()

    def step(model, optimizer, loss, x, y):
        users, items = x[:, 0], x[:, 1]
        pred = model(users, items) + mu
        reg = (model.u(users) ** 2).mean() + (model.i(items) ** 2).mean()
        l = loss(pred, y) + 1e-3 * reg
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X[:, 0], X[:, 1]) + mu, Y))
    return pack(
        model,
        torch.stack([u, i], 1),
        rating,
        nn.MSELoss(),
        torch.optim.Adam(model.parameters(), lr=1e-2),
        step,
        learned,
        0.7,
    )


@program
def input_normalized_by_batch():
    X, y = friedman()
    X = X * torch.tensor([1.0, 100, 5, 30, 0.1, 1000, 2, 8]) + torch.tensor([0.0, 500, -20, 4, 9, 1, 0, 60])
    Y = (y - y.mean()) / y.std()
    model = mlp(8, 48, 1)

    def norm(x):
        return (x - x.mean(dim=0, keepdim=True)) / (x.std(dim=0, keepdim=True) + 1e-6)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        out = model(norm(x)).reshape(y.shape)
        l = loss(out, y)
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(norm(X)).reshape(Y.shape), Y))
    return pack(model, X, Y, nn.HuberLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.8)


@program
def pinn_residual_by_autograd():
    X = torch.rand(600, 1) * 2
    X = X[torch.randperm(600)]
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def step(model, optimizer, loss, x, y):
        t = x.clone().requires_grad_(True)  # u' = -u + cos t, u(0) = 1
        u = model(t)
        du = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), create_graph=True)[0]
        residual = du + u - torch.cos(t)
        u0 = model(torch.zeros(1, 1))
        l = loss(residual, torch.zeros_like(residual)) + loss(u0, torch.ones_like(u0))
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    def exact(t):
        return (t.cos() + t.sin()) / 2 + 0.5 * torch.exp(-t)

    learned = evaluating(lambda m, X, Y: r2(m(X), exact(X)))
    return pack(
        model, X, torch.zeros(600), nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.95
    )


# ---------------------------------------------------------------- gradients and optimizers
@program
def gradient_penalty_r1():
    X, Y = digits()
    model = mlp(64, 64, 10)

    def step(model, optimizer, loss, x, y):
        x = x.detach().requires_grad_(True)
        out = model(x)
        ce = loss(out, y)
        (g,) = torch.autograd.grad(out.logsumexp(1).sum(), x, create_graph=True)
        l = ce + 0.01 * g.pow(2).sum(1).mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def l1_penalty_over_parameters():
    X = torch.randn(640, 20)
    Y = 2 * X[:, 0] - 1.5 * X[:, 1] + X[:, 2] + 0.2 * torch.randn(640)
    model = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 1))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = loss(model(x), y[:, None])
        l1_norm = sum(p.abs().sum() for p in model.parameters())
        (l + 1e-4 * l1_norm).backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(X)[:, 0], Y))
    return pack(model, X, Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, learned, 0.9)


@program
def ema_of_weights():
    X, Y = digits()
    model = mlp(64, 64, 10)
    ema = copy.deepcopy(model)
    for p in ema.parameters():
        p.requires_grad_(False)

    @torch.no_grad()
    def update(model, decay=0.95):
        for e, p in zip(ema.state_dict().values(), model.state_dict().values()):
            e.copy_(e * decay + p * (1 - decay))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = loss(model(x), y)
        l.backward()
        optimizer.step()
        update(model)

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        lambda m, X, Y: min(accuracy(m, X, Y), accuracy(ema, X, Y)),
        0.9,
    )


@program
def mean_teacher_consistency():
    X, Y = digits()
    keep = torch.rand(800) < 0.5
    Y = Y.masked_fill(~keep, -1)  # half of the labels are unknown
    model = mlp(64, 64, 10)
    teacher = copy.deepcopy(model).requires_grad_(False)

    def step(model, optimizer, loss, x, y):
        student = model(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            soft = F.softmax(teacher(x + 0.1 * torch.randn_like(x)), dim=1)
        l = F.cross_entropy(student, y, ignore_index=-1) + F.mse_loss(F.softmax(student, dim=1), soft)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), model.parameters()):
                t.mul_(0.95).add_(s, alpha=0.05)

    return pack(
        model,
        X,
        Y,
        None,
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        lambda m, X, Y: accuracy(m, X[Y >= 0], Y[Y >= 0]),
        0.9,
    )


@program
def onecycle_stepped_per_batch():
    X, Y = digits(flat=False)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5000, pct_start=0.1)
    lrs = []

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = loss(model(x), y)
        l.backward()
        optimizer.step()
        lrs.append(optimizer.param_groups[0]["lr"])
        scheduler.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), optimizer, step, accuracy, 0.88)


@program
def cosine_scheduler_per_batch():
    X, Y = blobs(640, 12, 4)
    model = mlp(12, 48, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2000)

    def step(model, optimizer, loss, x, y):
        l = loss(model(x), y)
        l.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

    return pack(model, X, Y, nn.CrossEntropyLoss(), optimizer, step, accuracy, 0.9)


@program
def warmup_by_hand():
    X, Y = digits()
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.LayerNorm(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.LayerNorm(64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    base_lr, warmup, count = 5e-3, 20, [0]

    def step(model, optimizer, loss, x, y):
        count[0] += 1
        for group in optimizer.param_groups:
            group["lr"] = base_lr * min(1.0, count[0] / warmup)
        optimizer.zero_grad()
        l = loss(model(x), y)
        l.backward()
        optimizer.step()

    return pack(
        model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=base_lr), step, accuracy, 0.9
    )


@program
def amp_autocast_gradscaler_disabled():
    X, Y = digits()
    model = mlp(64, 64, 10)
    use_amp = torch.cuda.is_available()
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            output = model(x)
            l = loss(output, y)
        scaler.scale(l).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def accumulation_over_chunks():
    X, Y = digits()
    model = mlp(64, 64, 10)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        for xb, yb in zip(x.chunk(4), y.chunk(4)):
            l = loss(model(xb), yb) * len(xb) / len(x)
            l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def accumulation_every_second_call():
    X, Y = digits()
    model = mlp(64, 64, 10)
    accumulation_steps, seen = 2, [0]

    def step(model, optimizer, loss, x, y):
        l = loss(model(x), y) / accumulation_steps
        l.backward()
        seen[0] += 1
        if seen[0] % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, accuracy, 0.9)


@program
def zero_grad_at_the_end():
    X, Y = friedman()
    Y = (Y - Y.mean()) / Y.std()
    model = mlp(8, 48, 1)

    def step(model, optimizer, loss, x, y):
        l = loss(model(x), y.reshape(-1, 1))
        l.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return l.detach()

    learned = evaluating(lambda m, X, Y: r2(m(X)[:, 0], Y))
    return pack(model, X, Y, nn.L1Loss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.8)


@program
def lbfgs_closure():
    X, Y = friedman(480)
    Y = ((Y - Y.mean()) / Y.std()).unsqueeze(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def step(model, optimizer, loss, x, y):
        def closure():
            optimizer.zero_grad()
            l = loss(model(x), y)
            l.backward()
            return l

        return optimizer.step(closure).item()

    learned = evaluating(lambda m, X, Y: r2(m(X), Y))
    return pack(
        model,
        X,
        Y,
        nn.MSELoss(),
        torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2, history_size=5, line_search_fn="strong_wolfe"),
        step,
        learned,
        0.65,
    )


@program
def two_groups_backbone_head():
    X, Y = digits(flat=False)
    model = nn.Sequential()
    model.add_module(
        "backbone", nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    )
    model.add_module("head", nn.Sequential(nn.Linear(256, 48), nn.ReLU(), nn.Linear(48, 10)))
    optimizer = torch.optim.AdamW(
        [
            {"params": model.backbone.parameters(), "lr": 1e-3},
            {"params": model.head.parameters(), "lr": 4e-3, "weight_decay": 0.0},
        ],
        lr=1e-3,
    )

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        feats = model.backbone(x)
        logits = model.head(feats)
        loss(logits, y).backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), optimizer, step, accuracy, 0.9)


@program
def finetune_frozen_backbone():
    X, Y = digits()
    backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    head = nn.Linear(64, 10)
    pre = nn.Sequential(backbone, nn.Linear(64, 10))
    o = torch.optim.Adam(pre.parameters(), lr=3e-3)
    for i in range(60):
        b = torch.randint(800, (64,))
        o.zero_grad()
        F.cross_entropy(pre(X[b]), (Y[b] * 7 + 3) % 10).backward()
        o.step()
    for p in backbone.parameters():
        p.requires_grad = False
        p.grad = None
    model = nn.Sequential(backbone, head)

    def step(model, optimizer, loss, x, y):
        model[0].eval()
        optimizer.zero_grad()
        with torch.no_grad():
            feats = model[0](x)
        l = loss(model[1](feats), y)
        l.backward()
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3),
        step,
        accuracy,
        0.9,
    )


@program
def sam_double_step():
    X, Y = digits()
    model = mlp(64, 64, 10)
    rho = 0.05

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
            moves = [p.grad * (rho / (norm + 1e-12)) for p in model.parameters()]
            for p, e in zip(model.parameters(), moves):
                p.add_(e)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moves):
                p.sub_(e)
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        step,
        accuracy,
        0.9,
    )


@program
def fgsm_adversarial_training():
    X, Y = digits()
    model = mlp(64, 64, 10)

    def step(model, optimizer, loss, x, y):
        adv = x.clone().detach().requires_grad_(True)
        g = torch.autograd.grad(loss(model(adv), y), adv)[0]
        adv = (adv + 0.05 * g.sign()).detach()
        optimizer.zero_grad()
        l = 0.5 * (loss(model(x), y) + loss(model(adv), y))
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def rdrop_two_passes_kl():
    X, Y = digits()
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.3), nn.Linear(96, 10))

    def step(model, optimizer, loss, x, y):
        a, b = model(x), model(x)
        ce = 0.5 * (loss(a, y) + loss(b, y))
        pa, pb = F.log_softmax(a, -1), F.log_softmax(b, -1)
        kl = 0.5 * (
            F.kl_div(pa, pb, reduction="batchmean", log_target=True)
            + F.kl_div(pb, pa, reduction="batchmean", log_target=True)
        )
        l = ce + 0.5 * kl
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def ohem_top_half_of_losses():
    X, Y = digits()
    model = mlp(64, 64, 10)

    def step(model, optimizer, loss, x, y):
        losses = loss(model(x), y)
        hard, _ = losses.topk(max(1, int(0.7 * len(losses))))
        l = hard.mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        accuracy,
        0.9,
    )


# ---------------------------------------------------------------- how it is wrapped
@program
def train_eval_toggle_validation_in_body():
    X, Y = digits()
    Xv, Yv = X[700:], Y[700:]
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    log = {"step": 0, "val": []}

    def step(model, optimizer, loss, x, y):
        model.train()
        optimizer.zero_grad()
        l = loss(model(x), y)
        l.backward()
        optimizer.step()
        log["step"] += 1
        if log["step"] % 10 == 0:
            model.eval()
            with torch.no_grad():
                log["val"].append(loss(model(Xv), Yv).item())

    return pack(
        model,
        X[:700],
        Y[:700],
        nn.CrossEntropyLoss(),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        accuracy,
        0.9,
    )


@program
def distillation_frozen_teacher():
    X, Y = digits()
    teacher = mlp(64, 128, 10)
    o = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for i in range(150):
        b = torch.randint(800, (64,))
        o.zero_grad()
        F.cross_entropy(teacher(X[b]), Y[b]).backward()
        o.step()
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    T, alpha = 3.0, 0.7

    def step(model, optimizer, loss, x, y):
        with torch.no_grad():
            teacher_logits = teacher(x)
        student_logits = model(x)
        soft = (
            nn.KLDivLoss(reduction="batchmean")(
                F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1)
            )
            * T
            * T
        )
        hard = loss(student_logits, y)
        l = alpha * soft + (1 - alpha) * hard
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def isnan_guard_and_try():
    X, Y = digits()
    model = mlp(64, 64, 10)
    skipped = []

    def step(model, optimizer, loss, x, y):
        try:
            optimizer.zero_grad()
            out = model(x)
            l = loss(out, y)
            if torch.isnan(l) or torch.isinf(l):
                print("nan loss, skipping batch")
                skipped.append(1)
                return
            l.backward()
            optimizer.step()
        except RuntimeError as e:
            if "out of memory" in str(e):
                print("| WARNING: ran out of memory, skipping batch")
            else:
                raise

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.NAdam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


@program
def frozen_word_vectors_looked_up_outside():
    v, n, T = 50, 560, 9
    vectors = torch.randn(v, 20)  # "GloVe"
    X = torch.randint(1, v, (n, T))
    lean = vectors[:, 0]
    Y = (lean[X].sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))

    def features(x):
        with torch.no_grad():
            return F.embedding(x, vectors).mean(1) * T**0.5

    def step(model, optimizer, loss, x, y):
        emb = features(x)
        optimizer.zero_grad()
        logits = model(emb)
        l = loss(logits, y)
        l.backward()
        optimizer.step()

    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.Adam(model.parameters(), lr=5e-3),
        step,
        lambda m, X, Y: accuracy(m, features(X), Y),
        0.9,
    )


class Parallel(nn.Module):
    """As DataParallel, on one device."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


@program
def data_parallel_wrapper():
    X, Y = digits(flat=False)
    model = Parallel(cnn())

    def step(model, optimizer, loss, x, y):
        core = model.module if hasattr(model, "module") else model
        optimizer.zero_grad()
        out = model(x)
        l = loss(out, y).mean()  # mean over devices
        l.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(core.parameters(), 5.0).item()
        optimizer.step()
        return l.item(), grad_norm

    return pack(model, X, Y, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), step, accuracy, 0.9)


class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n


class Trainer:
    def __init__(self, max_norm=1.0, device="cpu"):
        self.max_norm, self.device, self.global_step, self.losses, self.accs = max_norm, device, 0, Meter(), Meter()

    def forward_loss(self, model, loss, batch):
        x, y = (t.to(self.device, non_blocking=True) for t in batch)
        out = model(x)
        return out, loss(out, y)

    def train_step(self, model, optimizer, loss, x, y):
        model.train()
        out, l = self.forward_loss(model, loss, (x, y))
        self.losses.update(l.item(), x.size(0))
        self.accs.update((out.argmax(1) == y).float().mean().item(), x.size(0))
        optimizer.zero_grad()
        l.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
        optimizer.step()
        self.global_step += 1


@program
def trainer_class_method():
    X, Y = digits()
    model = mlp(64, 64, 10)
    return pack(
        model,
        X,
        Y,
        nn.CrossEntropyLoss(),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        Trainer().train_step,
        accuracy,
        0.9,
    )


def _generic_step(cfg, transform, model, optimizer, loss, x, y, verbose=False):
    x, y = transform(x), y
    out = model(x)
    l = sum(w * f(out, y) for w, f in cfg["losses"]) if loss is None else loss(out, y)
    optimizer.zero_grad()
    l.backward()
    optimizer.step()
    if verbose:
        print(l.item())


@program
def functools_partial_with_config():
    X, Y = blobs(640, 10, 3)
    model = mlp(10, 32, 3)
    step = functools.partial(
        _generic_step,
        {"losses": [(1.0, F.cross_entropy), (0.2, F.multi_margin_loss)]},
        lambda x: x.float() * 0.5,
        verbose=False,
    )
    return pack(
        model,
        X,
        Y,
        None,
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        lambda m, X, Y: accuracy(m, X * 0.5, Y),
        0.9,
    )


DEVICE = torch.device("cpu")
ITERATION = 0
ALL_LOSSES = []


def _global_step(model, optimizer, loss, x, y):
    global ITERATION
    data, target = x.to(DEVICE), y.to(DEVICE)
    optimizer.zero_grad()
    output = model(data)
    l = loss(output, target)
    l.backward()
    optimizer.step()
    ITERATION += 1
    ALL_LOSSES.append(l.item())
    if ITERATION % 100 == 0:
        print("Train iteration: {} \tLoss: {:.6f}".format(ITERATION, l.item()))


@program
def global_variables():
    X, Y = digits(flat=False)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 10, 3), nn.Conv2d(10, 20, 3)
            self.conv2_drop, self.fc1, self.fc2 = nn.Dropout2d(0.1), nn.Linear(80, 50), nn.Linear(50, 10)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
            x = F.relu(self.fc1(x.view(-1, 80)))
            x = F.dropout(x, 0.2, training=self.training)
            return F.log_softmax(self.fc2(x), dim=1)

    model = Net()
    return pack(
        model,
        X,
        Y,
        F.nll_loss,
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        _global_step,
        accuracy,
        0.85,
    )


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, 4) for c in (6, 10, 3)])
        self.net = nn.Sequential(nn.Linear(17, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, cat, cont):
        return self.net(torch.cat([e(cat[:, i]) for i, e in enumerate(self.embs)] + [cont], 1))


@program
def tabular_embeddings_cat_and_cont():
    n = 640
    cat = torch.stack([torch.randint(c, (n,)) for c in (6, 10, 3)], 1)
    cont = torch.randn(n, 5)
    Y = (
        torch.randn(6)[cat[:, 0]]
        + torch.randn(10)[cat[:, 1]]
        + cont[:, 0] * torch.tensor([1.0, -1.0, 2.0])[cat[:, 2]]
        + 0.1 * torch.randn(n)
    )
    model = Wide()

    def step(model, optimizer, loss, x, y):
        cats, conts = x[0].long(), x[1].float()
        optimizer.zero_grad()
        preds = model(cats, conts)
        l = loss(preds, y.unsqueeze(-1))
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: r2(m(*X).squeeze(-1), Y))
    return pack(model, (cat, cont), Y, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=1e-2), step, learned, 0.85)


@program
def bpr_negatives_drawn_in_body():
    users, items = 40, 50
    U, V = torch.randn(users, 3), torch.randn(items, 3)
    liked = (U @ V.T) > 1.0
    pairs = liked.nonzero()
    pairs = pairs[torch.randperm(len(pairs))][:600]

    class BPR(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i, self.bi = nn.Embedding(users, 8), nn.Embedding(items, 8), nn.Embedding(items, 1)
            nn.init.normal_(self.u.weight, std=0.1)
            nn.init.normal_(self.i.weight, std=0.1)
            nn.init.zeros_(self.bi.weight)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1) + self.bi(i).squeeze(1)

    model = BPR()

    def step(model, optimizer, loss, x, y):
        u, pos = x[:, 0], x[:, 1]
        neg = torch.randint(items, (len(x),))
        diff = model(u, pos) - model(u, neg)
        l = -F.logsigmoid(diff).mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    @evaluating
    def auc(m, X, Y):
        s = m.u.weight @ m.i.weight.T + m.bi.weight.T
        seen = torch.zeros(users, items, dtype=torch.bool)
        seen[X[:, 0], X[:, 1]] = True
        return (s[seen][:, None] > s[~seen][None, :2000]).float().mean()

    return pack(
        model, pairs, torch.ones(len(pairs)), None, torch.optim.Adam(model.parameters(), lr=2e-2), step, auc, 0.8
    )


@program
def margin_ranking_pairs():
    X = torch.randn(640, 2, 8)
    w = torch.randn(8)
    score = torch.tanh(X @ w) + 0.3 * X[..., 0] ** 2
    Y = torch.sign(score[:, 0] - score[:, 1])
    model = mlp(8, 32, 1)

    def step(model, optimizer, loss, x, y):
        s1, s2 = model(x[:, 0]).squeeze(-1), model(x[:, 1]).squeeze(-1)
        l = loss(s1, s2, y)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: (torch.sign((m(X[:, 0]) - m(X[:, 1])).squeeze(-1)) == Y).float().mean())
    return pack(
        model,
        X,
        Y,
        nn.MarginRankingLoss(margin=0.5),
        torch.optim.Adam(model.parameters(), lr=3e-3),
        step,
        learned,
        0.88,
    )


@program
def bag_of_instances_multiple_instance():
    n, k = 480, 6
    X = torch.randn(n, k, 8)
    pos = torch.rand(n) < 0.5
    X[pos, 0] += torch.tensor([2.5, -2.5, 0, 0, 0, 0, 0, 0])
    X = torch.stack([b[torch.randperm(k)] for b in X])
    model = mlp(8, 32, 1)

    def step(model, optimizer, loss, x, y):
        b, k, d = x.shape
        scores = model(x.view(b * k, d)).view(b, k)
        bag = scores.max(dim=1).values
        l = loss(bag, y.float())
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: ((m(X).squeeze(-1).max(1).values > 0) == Y).float().mean())
    return pack(
        model, X, pos, nn.BCEWithLogitsLoss(), torch.optim.Adam(model.parameters(), lr=5e-3), step, learned, 0.88
    )


@program
def model_computes_own_loss():
    X, Y = digits()

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(64, 64, 10)

        def forward(self, pixel_values, labels=None):
            logits = self.net(pixel_values)
            return {"loss": None if labels is None else F.cross_entropy(logits, labels), "logits": logits}

    model = WithLoss()

    def step(model, optimizer, loss, x, y):
        batch = {"pixel_values": x, "labels": y}
        outputs = model(**batch)
        outputs["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    learned = evaluating(lambda m, X, Y: (m(X)["logits"].argmax(1) == Y).float().mean())
    return pack(model, X, Y, None, torch.optim.AdamW(model.parameters(), lr=3e-3), step, learned, 0.9)


@program
def graph_masked_nodes_full_batch():
    # small graphs as dense adjacency, one row an example; normalised in the body
    n, k = 480, 8
    A = (torch.rand(n, k, k) < 0.3).float()
    A = ((A + A.transpose(1, 2)) > 0).float()
    feat = torch.randn(n, k, 4)
    smooth = ((A + torch.eye(k)) @ feat[..., :1]).squeeze(-1) / (A.sum(-1) + 1)
    label = (smooth > 0).long()
    known = torch.rand(n, k) < 0.5

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(4, 32), nn.Linear(32, 2)

        def forward(self, x, adj):
            return self.l2(F.relu(adj @ self.l1(x)))

    model = GCN()

    def normed(a):
        a = a + torch.eye(a.size(-1))
        return a / a.sum(-1, keepdim=True)

    def step(model, optimizer, loss, x, y):
        feats, adj = x
        labels, train_mask = y
        out = F.log_softmax(model(feats, normed(adj)), dim=-1)
        l = F.nll_loss(out[train_mask], labels[train_mask])
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    learned = evaluating(lambda m, X, Y: (m(X[0], normed(X[1])).argmax(-1) == Y[0]).float().mean())
    return pack(
        model,
        (feat, A),
        (label, known),
        None,
        torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4),
        step,
        learned,
        0.9,
    )
