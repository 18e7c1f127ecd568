"""A fourth lot of sound programs, chosen for how they train and what they are handed. PROGRAMS = {name: build}, as in sound_programs.py.

Scores are accuracies, shares of what a constant answer leaves (1 - error / error of the constant), or as their comments say.
"""

# ruff: noqa - written as people write them, by somebody who knew neither the checks nor the code

import copy
import math
import random
from dataclasses import dataclass
from itertools import cycle
from typing import Optional

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, WeightedRandomSampler

from sound_programs import acc, digits, markov
from sound_programs_more import explained, images

PROGRAMS = {}


def program(setup):
    """setup() -> args, kwargs, train, score, all over one fresh model; the checkup gets one, our own training another."""

    def build(seed=0):
        both = []
        for _ in range(2):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            both.append(setup())
        (args, kwargs, _, _), (_, _, train, score) = both
        return args, kwargs, train, score

    PROGRAMS[setup.__name__] = build
    return setup


# ---------------------------------------------------------------------- words and letters


@program
def stateful_lstm_truncated_bptt():
    # a Keras stateful=True network rewritten: the state lives on the module, is detached at every call and reset at every epoch
    streams, window = 32, 20

    class StatefulLSTM(nn.Module):
        def __init__(self, n_features=2, hidden=32):
            super().__init__()
            self.lstm = nn.LSTM(n_features, hidden, batch_first=True)
            self.out = nn.Linear(hidden, 1)
            self.state = None

        def reset_states(self):
            self.state = None

        def forward(self, x):
            if self.state is not None:
                self.state = tuple(s.detach() for s in self.state)
            h, self.state = self.lstm(x, self.state)
            return self.out(h)

    # a leaky sum of what comes in while a gate is open, which needs more memory than one window shows
    g = torch.Generator().manual_seed(61)
    u = torch.randn(streams, 601, generator=g)
    gate = (torch.rand(streams, 601, generator=g) < 0.3).float()
    level = torch.zeros(streams, 601)
    for t in range(1, 601):
        level[:, t] = 0.95 * level[:, t - 1] + 0.3 * gate[:, t] * u[:, t]
    level = level / level.std()
    x, y = torch.stack([u, gate], 2), level[..., None]

    def windows():
        for t in range(0, 600, window):
            yield x[:, t : t + window], y[:, t : t + window]

    model = StatefulLSTM()
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=5e-3)

    def train():
        model.train()
        for _ in range(25):
            model.reset_states()
            for xb, yb in windows():
                optimizer.zero_grad()
                loss = criterion(model(xb), yb)
                loss.backward()
                optimizer.step()

    def score():
        model.eval()
        model.reset_states()
        with torch.no_grad():
            out = torch.cat([model(xb) for xb, _ in windows()], 1)
        model.reset_states()
        return explained(out.flatten(), y[:, :600].flatten())

    xb, yb = next(windows())
    return (model, xb, yb), dict(loss=criterion, optimizer=optimizer, data=windows), train, score


@program
def token_bucket_tagger():
    # fairseq-like max_tokens: sentences of like length share a batch, so batches differ in size; labels padded with -100
    V, tags, max_tokens = 60, 6, 300
    g = torch.Generator().manual_seed(62)
    kind = torch.randint(tags, (V,), generator=g)
    sentences, labels = [], []
    for _ in range(700):
        n = int(torch.randint(4, 26, (1,), generator=g))
        w = torch.randint(1, V, (n,), generator=g)
        before = torch.cat([torch.zeros(1, dtype=torch.long), w[:-1]])
        sentences.append(w)
        labels.append(
            (kind[w] + (before % 2) * (kind[w] % 2)) % tags
        )  # the tag of half of the words hangs on the word before

    class Sentences(Dataset):
        def __init__(self, part):
            self.part = part

        def __len__(self):
            return len(self.part)

        def __getitem__(self, i):
            return {"words": sentences[self.part[i]], "tags": labels[self.part[i]]}

    class TokenBucketSampler(Sampler):
        def __init__(self, lengths):
            self.lengths = lengths

        def batches(self):
            order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], random.random()))
            batch, longest = [], 0
            for i in order:
                longest = max(longest, self.lengths[i])
                if batch and longest * (len(batch) + 1) > max_tokens:
                    yield batch
                    batch, longest = [], self.lengths[i]
                batch.append(i)
            yield batch

        def __iter__(self):
            found = list(self.batches())
            random.shuffle(found)
            return iter(found)

        def __len__(self):
            return len(list(self.batches()))

    def collate(rows):
        pad = nn.utils.rnn.pad_sequence
        words = pad([r["words"] for r in rows], batch_first=True)
        lengths = torch.tensor([len(r["words"]) for r in rows])
        return {"words": words, "lengths": lengths}, pad(
            [r["tags"] for r in rows], batch_first=True, padding_value=-100
        )

    class Tagger(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.emb = nn.Embedding(V, d, padding_idx=0)
            self.lstm = nn.LSTM(d, d, bidirectional=True, batch_first=True)
            self.drop = nn.Dropout(0.1)
            self.out = nn.Linear(2 * d, tags)

        def forward(self, words, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.emb(words), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            h, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.size(1))
            return self.out(self.drop(h))

    train_set, test_set = Sentences(range(600)), Sentences(range(600, 700))
    loader = DataLoader(
        train_set, batch_sampler=TokenBucketSampler([len(sentences[i]) for i in range(600)]), collate_fn=collate
    )
    model = Tagger()
    optimizer = optim.AdamW(model.parameters(), lr=5e-3)

    def criterion(scores, tags):
        return F.cross_entropy(scores.transpose(1, 2), tags, ignore_index=-100)

    def step(model, optimizer, loss, batch, tags):
        optimizer.zero_grad()
        l = loss(model(**batch), tags)
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return l.item()

    def train():
        model.train()
        for _ in range(12):
            for batch, t in loader:
                step(model, optimizer, criterion, batch, t)

    def score():
        batch, t = collate([test_set[i] for i in range(100)])
        model.eval()
        with torch.no_grad():
            right = model(**batch).argmax(-1) == t
        model.train()
        return right[t != -100].float().mean().item()

    batch, t = next(iter(loader))
    return (model, batch, t), dict(loss=criterion, optimizer=optimizer, data=loader, step=step), train, score


@dataclass
class CausalLMOutput:
    loss: Optional[torch.Tensor] = None
    logits: Optional[torch.Tensor] = None


@program
def hf_causal_lm_labels_are_inputs():
    # DataCollatorForLanguageModeling(mlm=False): labels a copy of input_ids with -100 at the padding, shifted inside of the model;
    # tied head, GPT-2 initial values, AdamW without decay on norms and biases, linear warm-up and decay by the batch
    V, T, d = 24, 20, 32

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, dropout=0.0, batch_first=True)
            self.ln_2 = nn.LayerNorm(d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))

        def forward(self, x, mask):
            h = self.ln_1(x)
            x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
            return x + self.mlp(self.ln_2(x))

    class TinyGPT2LMHeadModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, d), nn.Embedding(T, d)
            self.h = nn.ModuleList(Block() for _ in range(2))
            self.ln_f = nn.LayerNorm(d)
            self.lm_head = nn.Linear(d, V, bias=False)
            for m in self.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(m.weight, std=0.02)
            self.lm_head.weight = self.wte.weight

        def forward(self, input_ids, attention_mask=None, labels=None):
            n = input_ids.size(1)
            mask = torch.full((n, n), float("-inf")).triu(1)
            x = self.wte(input_ids) + self.wpe(torch.arange(n))
            for block in self.h:
                x = block(x, mask)
            logits = self.lm_head(self.ln_f(x))
            loss = None
            if labels is not None:
                loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1), ignore_index=-100)
            return CausalLMOutput(loss=loss, logits=logits)

    text = markov(V - 1, 900, T, peak=8.0) + 1  # 0 pads
    lengths = torch.randint(8, T + 1, (900,), generator=torch.Generator().manual_seed(63))
    rows = [text[i, :n] for i, n in enumerate(lengths.tolist())]

    def data_collator(features):
        ids = nn.utils.rnn.pad_sequence(features, batch_first=True)
        mask = (ids != 0).long()
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    model = TinyGPT2LMHeadModel()
    decay = [p for n, p in model.named_parameters() if p.ndim > 1]
    no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1]
    optimizer = optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=4e-3
    )
    loader = DataLoader(rows[:800], batch_size=32, shuffle=True, collate_fn=data_collator)
    epochs = 12
    total = epochs * len(loader)
    warmup = total // 10
    scheduler = optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (s + 1) / warmup if s < warmup else max(0.0, (total - s) / (total - warmup))
    )

    def train():
        model.train()
        for _ in range(epochs):
            for batch in loader:
                loss = model(**batch).loss
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    def score():  # share of the entropy of single tokens (log 23 at most) that is foretold, held-out; the law of the text allows 0.60
        model.eval()
        batch = data_collator(rows[800:])
        with torch.no_grad():
            loss = model(**batch).loss.item()
        model.train()
        share = torch.bincount(torch.cat(rows[800:]), minlength=V).float()
        share = share[share > 0] / share.sum()
        return 1 - loss / -(share * share.log()).sum().item()

    return (model, next(iter(loader))), dict(optimizer=optimizer, data=loader), train, score


@program
def t5_labels_shifted_right():
    # a T5-like model: decoder inputs made from the labels by a shift to the right, RMS norm, no biases
    V, d, start, eos = 18, 32, 0, 1

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))

        def forward(self, x, kv, causal=False):
            split = lambda t: t.view(len(t), -1, 4, d // 4).transpose(1, 2)
            y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(kv)), split(self.v(kv)), is_causal=causal)
            return self.o(y.transpose(1, 2).reshape(x.shape))

    class Layer(nn.Module):
        def __init__(self, decoder):
            super().__init__()
            self.attn, self.n1, self.n3 = Attention(), RMSNorm(), RMSNorm()
            self.ff = nn.Sequential(nn.Linear(d, 64, bias=False), nn.ReLU(), nn.Linear(64, d, bias=False))
            self.cross, self.n2 = (Attention(), RMSNorm()) if decoder else (None, None)

        def forward(self, x, memory=None):
            h = self.n1(x)
            x = x + self.attn(h, h, causal=memory is not None)
            if memory is not None:
                x = x + self.cross(self.n2(x), memory)
            return x + self.ff(self.n3(x))

    class ForConditionalGeneration(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.position = nn.Embedding(V, d), nn.Embedding(12, d)
            self.encoder = nn.ModuleList(Layer(False) for _ in range(2))
            self.decoder = nn.ModuleList(Layer(True) for _ in range(2))
            self.enc_norm, self.dec_norm = RMSNorm(), RMSNorm()
            self.lm_head = nn.Linear(d, V, bias=False)

        def _shift_right(self, labels):
            shifted = labels.new_full(labels.shape, start)
            shifted[:, 1:] = labels[:, :-1]
            return shifted.masked_fill(shifted == -100, start)

        def forward(self, input_ids, labels):
            x = self.shared(input_ids) + self.position.weight[: input_ids.size(1)]
            for layer in self.encoder:
                x = layer(x)
            x = self.enc_norm(x)
            y = self.shared(self._shift_right(labels)) + self.position.weight[: labels.size(1)]
            for layer in self.decoder:
                y = layer(y, x)
            logits = self.lm_head(self.dec_norm(y))
            return CausalLMOutput(F.cross_entropy(logits.view(-1, V), labels.view(-1), ignore_index=-100), logits)

    g = torch.Generator().manual_seed(64)
    src = torch.randint(2, V, (1800, 6), generator=g)
    lengths = torch.randint(3, 7, (1800,), generator=g)
    labels = torch.full((1800, 7), -100)
    for i, n in enumerate(lengths.tolist()):
        src[i, n:] = start
        labels[i, :n], labels[i, n] = src[i, :n].flip(0), eos

    class Pairs(Dataset):
        def __len__(self):
            return 1600

        def __getitem__(self, i):
            return {"input_ids": src[i], "labels": labels[i]}

    model = ForConditionalGeneration()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    loader = DataLoader(Pairs(), batch_size=64, shuffle=True, drop_last=True)

    def train():
        model.train()
        for _ in range(11):
            for batch in loader:
                optimizer.zero_grad()
                model(**batch).loss.backward()
                optimizer.step()

    def score():  # held-out words foretold from those before them
        model.eval()
        with torch.no_grad():
            right = model(src[1600:], labels[1600:]).logits.argmax(-1) == labels[1600:]
        model.train()
        return right[labels[1600:] != -100].float().mean().item()

    return (model, next(iter(loader))), dict(optimizer=optimizer, data=loader), train, score


# ---------------------------------------------------------------------- several loaders


@program
def mean_teacher_zipped_loaders():
    # labelled and unlabelled loaders zipped, the teacher an average of the student, consistency weight ramped up by the batch
    X, Y = images("fashion-mnist", 4000)
    X = F.avg_pool2d(X[:, None] if X.ndim == 3 else X, 2).flatten(1)
    X = (X - X.mean()) / X.std()

    def noisy(x):
        return x + 0.15 * torch.randn_like(x)

    class Unlabelled(Dataset):
        def __len__(self):
            return 2700

        def __getitem__(self, i):
            return noisy(X[300 + i]), noisy(X[300 + i])

    labelled = DataLoader(TensorDataset(X[:300], Y[:300]), batch_size=30, shuffle=True)
    unlabelled = DataLoader(Unlabelled(), batch_size=90, shuffle=True)

    class MeanTeacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Sequential(
                nn.Linear(196, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
            )
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x, u1=None, u2=None):
            if u1 is None:
                return self.student(x)
            with torch.no_grad():
                aim = F.softmax(self.teacher(u2), 1)
            return self.student(x), F.softmax(self.student(u1), 1), aim

        @torch.no_grad()
        def update_teacher(self, a):
            for t, s in zip(self.teacher.parameters(), self.student.parameters()):
                t.mul_(a).add_(s, alpha=1 - a)

    model = MeanTeacher()
    optimizer = optim.SGD(model.student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    seen = [0]

    def both():
        for (x, y), (u1, u2) in zip(cycle(labelled), unlabelled):
            yield (x, u1, u2), y

    def step(model, optimizer, loss, x, y):
        seen[0] += 1
        ramp = math.exp(-5 * (1 - min(1, seen[0] / 200)) ** 2)
        total = loss(model(*x), y, 5.0 * ramp)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        model.update_teacher(min(1 - 1 / (seen[0] + 1), 0.99))
        return total.item()

    def criterion(out, y, weight=5.0):
        logits, probs, aim = out
        return F.cross_entropy(logits, y) + weight * F.mse_loss(probs, aim)

    def train():
        model.train()
        for _ in range(14):
            for x, y in both():
                step(model, optimizer, criterion, x, y)

    x, y = next(both())
    return (
        (model, x, y),
        dict(loss=criterion, optimizer=optimizer, data=both, step=step),
        train,
        lambda: acc(model, X[3000:], Y[3000:]),
    )


@program
def multitask_dict_of_loaders():
    # one loader a task, drawn in turn; a shared trunk and a ModuleDict of heads; the batch names its task
    Xd, Yd = digits()
    X = (Xd - Xd.mean()) / Xd.std()
    total = (Xd.sum(1, keepdim=True) - Xd.sum(1).mean()) / Xd.sum(1).std()
    targets = {"digit": Yd, "even": (Yd % 2 == 0).float()[:, None], "ink": total}
    losses = {"digit": nn.CrossEntropyLoss(), "even": nn.BCEWithLogitsLoss(), "ink": nn.MSELoss()}
    loaders = {
        task: DataLoader(TensorDataset(X[:1400], t[:1400]), batch_size=64, shuffle=True) for task, t in targets.items()
    }

    class MultiTask(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.heads = nn.ModuleDict({"digit": nn.Linear(64, 10), "even": nn.Linear(64, 1), "ink": nn.Linear(64, 1)})

        def forward(self, x, task):
            return {task: self.heads[task](self.trunk(x))}

    model = MultiTask()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    def round_robin():
        iterators = {task: iter(loader) for task, loader in loaders.items()}
        for _ in range(len(loaders["digit"])):
            for task in iterators:
                x, y = next(iterators[task])
                yield {"x": x, "task": task}, y

    def criterion(out, y):
        return sum(losses[task](o, y) for task, o in out.items())

    def step(model, optimizer, loss, batch, y):
        optimizer.zero_grad()
        l = loss(model(**batch), y)
        l.backward()
        optimizer.step()
        return l.item()

    def train():
        model.train()
        for _ in range(8):
            for batch, y in round_robin():
                step(model, optimizer, criterion, batch, y)

    def score():  # mean of the two accuracies and the share of ink explained, held-out
        model.eval()
        with torch.no_grad():
            a = (model(X[1400:], "digit")["digit"].argmax(1) == Yd[1400:]).float().mean().item()
            b = ((model(X[1400:], "even")["even"] > 0).float() == targets["even"][1400:]).float().mean().item()
            c = explained(model(X[1400:], "ink")["ink"], total[1400:])
        model.train()
        return (a + b + c) / 3

    batch, y = next(round_robin())
    return (
        (model, batch, y),
        dict(loss=criterion, optimizer=optimizer, data=round_robin, step=step),
        train,
        score,
    )


# ---------------------------------------------------------------------- optimizers and what is done around their step


class Lookahead(optim.Optimizer):
    """Slow weights that follow the fast ones of another optimizer every k steps (Zhang et al., 2019)."""

    def __init__(self, optimizer, k=5, alpha=0.5):
        self.optimizer, self.k, self.alpha = optimizer, k, alpha
        self.param_groups, self.defaults, self.state = optimizer.param_groups, optimizer.defaults, optimizer.state
        self.counter = 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in self.param_groups]

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        self.counter += 1
        if self.counter % self.k == 0:
            for group, slow in zip(self.param_groups, self.slow):
                for p, q in zip(group["params"], slow):
                    q.add_(p - q, alpha=self.alpha)
                    p.copy_(q)
        return loss


@program
def lookahead_around_radam():
    X, Y = images("fashion-mnist", 3000)
    X = (X.reshape(-1, 1, 28, 28) - 0.2860) / 0.3530
    X = F.avg_pool2d(X, 2)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Mish(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.Mish(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = Lookahead(optim.RAdam(model.parameters(), lr=2e-2, weight_decay=1e-4), k=5, alpha=0.8)
    loader = DataLoader(TensorDataset(X[:2500], Y[:2500]), batch_size=64, shuffle=True, drop_last=True)

    def train():
        model.train()
        for _ in range(8):
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()

    x, y = next(iter(loader))
    return (
        (model, x, y),
        dict(loss=criterion, optimizer=optimizer, data=loader),
        train,
        lambda: acc(model, X[2500:], Y[2500:]),
    )


@program
def maximized_mixture_likelihood():
    # a Gaussian mixture fitted by ascent: the model returns log densities, the optimizer maximizes their mean
    g = torch.Generator().manual_seed(65)
    angle = torch.arange(5) * 2 * math.pi / 5
    centres = 2.0 * torch.stack([angle.cos(), angle.sin()], 1)
    which = torch.randint(5, (2500,), generator=g)
    points = centres[which] + 0.3 * torch.randn(2500, 2, generator=g)

    class Mixture(nn.Module):
        def __init__(self, k=8):
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(k))
            self.means = nn.Parameter(points[torch.randperm(2000)[:k]].clone())
            self.log_scales = nn.Parameter(torch.zeros(k, 2))

        def forward(self, x):
            parts = torch.distributions.Independent(torch.distributions.Normal(self.means, self.log_scales.exp()), 1)
            mix = torch.distributions.Categorical(logits=self.logits)
            return torch.distributions.MixtureSameFamily(mix, parts).log_prob(x)

    model = Mixture()
    optimizer = optim.Adam(model.parameters(), lr=0.03, maximize=True)
    loader = DataLoader(points[:2000], batch_size=200, shuffle=True)

    def step(model, optimizer, objective, x, _):
        optimizer.zero_grad()
        log_likelihood = objective(model(x), None)
        log_likelihood.backward()
        optimizer.step()
        return log_likelihood.item()

    def objective(log_prob, _):
        return log_prob.mean()

    def train():
        for _ in range(40):
            for x in loader:
                step(model, optimizer, objective, x, None)

    def score():  # nats a point above one Gaussian, held-out; the true law has about 1.54
        one = torch.distributions.MultivariateNormal(points[:2000].mean(0), points[:2000].T.cov())
        with torch.no_grad():
            return (model(points[2000:]) - one.log_prob(points[2000:])).mean().item()

    return (
        (model, next(iter(loader))),
        dict(loss=objective, optimizer=optimizer, data=loader, step=step),
        train,
        score,
    )


@program
def fused_adamw_scaler_off_one_cycle():
    # a script written for a GPU and run without one: channels last, autocast and scaler switched off, fused AdamW, OneCycle by the batch
    use_amp = torch.cuda.is_available()
    X, Y = images("fashion-mnist", 3500)
    X = F.avg_pool2d((X.reshape(-1, 1, 28, 28) - 0.2860) / 0.3530, 2)

    class BasicBlock(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.short = nn.Sequential() if stride == 1 and i == o else nn.Conv2d(i, o, 1, stride, bias=False)

        def forward(self, x):
            h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(h + self.short(x))

    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        BasicBlock(12, 12, 1), BasicBlock(12, 24, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05, fused=True)
    loader = DataLoader(TensorDataset(X[:3000], Y[:3000]), batch_size=60, shuffle=True)
    epochs = 5
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=epochs * len(loader), pct_start=0.3)
    scaler = torch.amp.GradScaler("cpu", enabled=use_amp)

    def train():
        model.train()
        for _ in range(epochs):
            for x, y in loader:
                x = x.contiguous(memory_format=torch.channels_last)
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cpu", enabled=use_amp):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()

    def step(model, optimizer, criterion, x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", enabled=use_amp):
            loss = criterion(model(x.contiguous(memory_format=torch.channels_last)), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    x, y = next(iter(loader))
    return (
        (model, x, y),
        dict(loss=criterion, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(model, X[3000:], Y[3000:]),
    )


@program
def layerwise_rates_small_vit():
    # BEiT-like fine-tuning groups: every layer's rate is 0.8 of the next one's, no decay on vectors; class token, cosine rate by the batch
    X, Y = digits()
    X = ((X - X.mean()) / X.std()).view(-1, 8, 8)
    d, depth = 48, 3

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attn = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, batch_first=True)
            self.norm2, self.mlp = nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d))

        def forward(self, x):
            h = self.norm1(x)
            x = x + self.attn(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch_embed = nn.Linear(4, d)
            self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, d))
            self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 17, d))
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 10)

        def forward(self, x):
            p = x.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(x), 16, 4)
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.patch_embed(p)], 1) + self.pos_embed
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)[:, 0])

    def param_groups_lrd(model, lr, weight_decay=0.05, layer_decay=0.8):
        groups = {}
        for name, p in model.named_parameters():
            if name.startswith(("patch_embed", "cls_token", "pos_embed")):
                layer = 0
            elif name.startswith("blocks."):
                layer = int(name.split(".")[1]) + 1
            else:
                layer = depth + 1
            decay = 0.0 if p.ndim == 1 or name in ("cls_token", "pos_embed") else weight_decay
            group = groups.setdefault(
                (layer, decay),
                {"params": [], "lr": lr * layer_decay ** (depth + 1 - layer), "weight_decay": decay},
            )
            group["params"].append(p)
        return list(groups.values())

    model = ViT()
    optimizer = optim.AdamW(param_groups_lrd(model, lr=6e-3), betas=(0.9, 0.95))
    base = [g["lr"] for g in optimizer.param_groups]
    loader = DataLoader(TensorDataset(X[:1500], Y[:1500]), batch_size=64, shuffle=True)
    epochs = 12

    def adjust_learning_rate(optimizer, epoch):
        share = min(1, epoch / 1) if epoch < 1 else 0.5 * (1 + math.cos(math.pi * (epoch - 1) / (epochs - 1)))
        for g, lr in zip(optimizer.param_groups, base):
            g["lr"] = lr * share

    def train():
        model.train()
        for epoch in range(epochs):
            for i, (x, y) in enumerate(loader):
                adjust_learning_rate(optimizer, epoch + i / len(loader))
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

    x, y = next(iter(loader))
    return (
        (model, x, y),
        dict(loss=F.cross_entropy, optimizer=optimizer, data=loader),
        train,
        lambda: acc(model, X[1500:], Y[1500:]),
    )


@program
def gradient_noise_and_clipping_by_value():
    # Neelakantan et al.: annealed Gaussian noise on every gradient of a deep net of the time, clipped by value before
    X, Y = digits()
    X = (X - X.mean()) / X.std()
    layers = [nn.Linear(64, 50), nn.ReLU()]
    for _ in range(7):
        layers += [nn.Linear(50, 50), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(50, 10))
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            nn.init.zeros_(m.bias)
    optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(TensorDataset(X[:1500], Y[:1500]), batch_size=50, shuffle=True)
    count = [0]

    def step(model, optimizer, loss_fn, x, y):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        std = math.sqrt(1e-4 / (1 + count[0]) ** 0.55)
        for p in model.parameters():
            p.grad.add_(torch.randn_like(p.grad), alpha=std)
        optimizer.step()
        count[0] += 1
        return loss.item()

    def train():
        for _ in range(15):
            for x, y in loader:
                step(model, optimizer, F.cross_entropy, x, y)

    x, y = next(iter(loader))
    return (
        (model, x, y),
        dict(loss=F.cross_entropy, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(model, X[1500:], Y[1500:]),
    )


@program
def monotone_net_clamped_weights():
    # a price that must not fall with any of its features: weights clamped to be non-negative after every step
    g = torch.Generator().manual_seed(66)
    x = torch.randn(2000, 4, generator=g, dtype=torch.float64)  # as it comes out of a table of numpy
    y = torch.tanh(x[:, 0]) + 0.5 * F.softplus(2 * x[:, 1]) + torch.sigmoid(3 * (x[:, 2] + x[:, 3]))
    y = y + 0.1 * torch.randn(2000, generator=g, dtype=torch.float64)
    y = ((y - y[:1600].mean()) / y[:1600].std())[:, None]

    class MonotoneNet(nn.Module):
        def __init__(self, width=32):
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1)
            with torch.no_grad():
                for fc in (self.fc1, self.fc2, self.fc3):
                    fc.weight.abs_()

        def forward(self, x):
            return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))

        @torch.no_grad()
        def clamp_weights(self):
            for name, p in self.named_parameters():
                if name.endswith("weight"):
                    p.clamp_(min=0)

    model = MonotoneNet().double()
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    loader = DataLoader(TensorDataset(x[:1600], y[:1600]), batch_size=64, shuffle=True)

    def step(model, optimizer, criterion, xb, yb):
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        model.clamp_weights()
        return loss

    def train():
        for _ in range(25):
            for xb, yb in loader:
                step(model, optimizer, criterion, xb, yb)

    def score():
        with torch.no_grad():
            return explained(model(x[1600:]), y[1600:])

    xb, yb = next(iter(loader))
    return (model, xb, yb), dict(loss=criterion, optimizer=optimizer, data=loader, step=step), train, score


# ---------------------------------------------------------------------- losses and what is kept on modules


@program
def proxy_nca_loss_in_the_optimizer():
    # metric learning: the loss module has proxies of its own, in a group of the optimizer with a larger rate
    X, Y = images("fashion-mnist", 3000)
    X = F.avg_pool2d((X.reshape(-1, 1, 28, 28) - 0.2860) / 0.3530, 2)

    class ProxyNCA(nn.Module):
        def __init__(self, num_classes, dim, scale=3.0):
            super().__init__()
            self.proxies = nn.Parameter(torch.randn(num_classes, dim) / 8)
            self.scale = scale

        def forward(self, z, labels):
            z = self.scale * F.normalize(z)
            p = self.scale * F.normalize(self.proxies)
            return F.cross_entropy(-(torch.cdist(z, p) ** 2), labels)

    class Embedder(nn.Module):
        def __init__(self, dim=16):
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
            )  # fmt: skip
            self.embed = nn.Linear(32 * 9, dim)

        def forward(self, x):
            return self.embed(self.features(x))

    model, loss_func = Embedder(), ProxyNCA(10, 16)
    optimizer = optim.Adam(
        [{"params": model.parameters(), "lr": 2e-3}, {"params": loss_func.parameters(), "lr": 2e-2}], weight_decay=1e-4
    )
    loader = DataLoader(TensorDataset(X[:2500], Y[:2500]), batch_size=50, shuffle=True)

    def train():
        model.train()
        for _ in range(9):
            for x, y in loader:
                optimizer.zero_grad()
                loss_func(model(x), y).backward()
                optimizer.step()

    def score():  # held-out pictures nearest to the proxy of their class
        model.eval()
        with torch.no_grad():
            near = F.normalize(model(X[2500:])) @ F.normalize(loss_func.proxies).T
        model.train()
        return (near.argmax(1) == Y[2500:]).float().mean().item()

    x, y = next(iter(loader))
    return (model, x, y), dict(loss=loss_func, optimizer=optimizer, data=loader), train, score


@program
def sparse_autoencoder_forward_hooks():
    # hooks gather the codes while the batch runs, the loop adds their KL to a target activity
    X, _ = digits()

    class PixelDataset(Dataset):
        def __len__(self):
            return 1500

        def __getitem__(self, i):
            return X[i], X[i]

    model = nn.Sequential(nn.Linear(64, 96), nn.Sigmoid(), nn.Linear(96, 64), nn.Sigmoid())
    captured = {}
    model[1].register_forward_hook(lambda module, inputs, output: captured.__setitem__("code", output))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    loader = DataLoader(PixelDataset(), batch_size=50, shuffle=True)
    rho, beta = 0.1, 1e-3

    def kl(code):
        q = code.mean(0).clamp(1e-5, 1 - 1e-5)
        return (rho * torch.log(rho / q) + (1 - rho) * torch.log((1 - rho) / (1 - q))).sum()

    def step(model, optimizer, criterion, x, target):
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, target) + beta * kl(captured["code"])
        loss.backward()
        optimizer.step()
        return loss.item()

    def train():
        model.train()
        for _ in range(40):
            for x, t in loader:
                step(model, optimizer, criterion, x, t)

    def score():
        with torch.no_grad():
            return explained(model(X[1500:]), X[1500:])

    x, t = next(iter(loader))
    return (model, x, t), dict(loss=criterion, optimizer=optimizer, data=loader, step=step), train, score


@program
def vq_codebook_by_moving_average():
    # VQ-VAE with the codebook in buffers, moved towards the codes inside of forward while training; the model returns loss and output
    X, _ = images("mnist", 2500)
    X = F.avg_pool2d(X.reshape(-1, 1, 28, 28), 2)

    class VectorQuantizerEMA(nn.Module):
        def __init__(self, K=32, D=8, decay=0.95, commitment=0.25, eps=1e-5):
            super().__init__()
            self.K, self.decay, self.commitment, self.eps = K, decay, commitment, eps
            self.register_buffer("codebook", torch.randn(K, D))
            self.register_buffer("cluster_size", torch.ones(K))
            self.register_buffer("ema_w", self.codebook.clone())

        def forward(self, z):  # (B, D, H, W)
            flat = z.permute(0, 2, 3, 1).reshape(-1, z.size(1))
            index = torch.cdist(flat, self.codebook).argmin(1)
            q = self.codebook[index]
            if self.training:
                with torch.no_grad():
                    hot = F.one_hot(index, self.K).type_as(flat)
                    self.cluster_size.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
                    self.ema_w.mul_(self.decay).add_(hot.T @ flat, alpha=1 - self.decay)
                    n = self.cluster_size.sum()
                    size = (self.cluster_size + self.eps) / (n + self.K * self.eps) * n
                    self.codebook.copy_(self.ema_w / size[:, None])
            loss = self.commitment * F.mse_loss(flat, q.detach())
            q = (flat + (q - flat).detach()).view(len(z), z.size(2), z.size(3), -1).permute(0, 3, 1, 2)
            return loss, q

    class Model(nn.Module):
        def __init__(self, variance):
            super().__init__()
            self.variance = variance
            self.encoder = nn.Sequential(
                nn.Conv2d(1, 16, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, 1, 1),
                nn.ReLU(),
                nn.Conv2d(32, 8, 1),
            )
            self.vq = VectorQuantizerEMA()
            self.decoder = nn.Sequential(
                nn.Conv2d(8, 32, 3, 1, 1),
                nn.ReLU(),
                nn.ConvTranspose2d(32, 16, 2, 2),
                nn.ReLU(),
                nn.Conv2d(16, 1, 3, 1, 1),
            )

        def forward(self, x):
            vq_loss, q = self.vq(self.encoder(x))
            recon = self.decoder(q)
            return F.mse_loss(recon, x) / self.variance + vq_loss, recon

    model = Model(X[:2200].var().item())
    optimizer = optim.Adam(model.parameters(), lr=2e-3, amsgrad=False)
    loader = DataLoader(X[:2200], batch_size=64, shuffle=True, drop_last=True)

    def step(model, optimizer, _loss, x, _):
        optimizer.zero_grad()
        loss, _ = model(x)
        loss.backward()
        optimizer.step()
        return loss.item()

    def train():
        model.train()
        for _ in range(6):
            for x in loader:
                step(model, optimizer, None, x, None)

    def score():
        model.eval()
        with torch.no_grad():
            out = model(X[2200:])[1]
        model.train()
        return explained(out.flatten(1), X[2200:].flatten(1))

    return (
        (model, next(iter(loader))),
        dict(loss=lambda out, _: out[0], optimizer=optimizer, data=loader, step=step),
        train,
        score,
    )


@program
def bayes_by_backprop_kl_in_loop():
    # Bayesian layers: weights drawn at every call, each layer keeps its KL, the loop adds them up over the number of batches
    X, Y = digits()
    X = (X - X.mean()) / X.std()

    class BayesianLinear(nn.Module):
        def __init__(self, i, o, prior=0.3):
            super().__init__()
            self.weight_mu, self.weight_rho = nn.Parameter(torch.empty(o, i)), nn.Parameter(torch.full((o, i), -4.0))
            self.bias_mu, self.bias_rho = nn.Parameter(torch.zeros(o)), nn.Parameter(torch.full((o,), -4.0))
            nn.init.kaiming_uniform_(self.weight_mu, a=math.sqrt(5))
            self.prior, self.kl = prior, 0.0

        def forward(self, x):
            ws, bs = F.softplus(self.weight_rho), F.softplus(self.bias_rho)
            weight = self.weight_mu + ws * torch.randn_like(ws)
            bias = self.bias_mu + bs * torch.randn_like(bs)
            p = torch.distributions.Normal(0.0, self.prior)
            kl = torch.distributions.kl_divergence
            self.kl = (
                kl(torch.distributions.Normal(self.weight_mu, ws), p).sum()
                + kl(torch.distributions.Normal(self.bias_mu, bs), p).sum()
            )
            return F.linear(x, weight, bias)

    class BNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2, self.l3 = BayesianLinear(64, 64), BayesianLinear(64, 64), BayesianLinear(64, 10)

        def forward(self, x):
            return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))

        def kl_loss(self):
            return sum(m.kl for m in self.modules() if isinstance(m, BayesianLinear))

    model = BNN()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(X[:1500], Y[:1500]), batch_size=50, shuffle=True)

    def step(model, optimizer, criterion, x, y):
        optimizer.zero_grad()
        nll = criterion(model(x), y)
        loss = nll + 0.1 * model.kl_loss() / 1500  # a cold posterior
        loss.backward()
        optimizer.step()
        return loss.item()

    def train():
        model.train()
        for _ in range(20):
            for x, y in loader:
                step(model, optimizer, F.cross_entropy, x, y)

    def score():  # held-out, over 10 draws
        with torch.no_grad():
            probs = sum(F.softmax(model(X[1500:]), 1) for _ in range(10))
        return (probs.argmax(1) == Y[1500:]).float().mean().item()

    x, y = next(iter(loader))
    return (model, x, y), dict(loss=F.cross_entropy, optimizer=optimizer, data=loader, step=step), train, score


class ReversibleFunction(torch.autograd.Function):
    """y1 = x1 + F(x2), y2 = x2 + G(y1) for a whole stack, keeping only the last outputs and working the inputs out again."""

    @staticmethod
    def forward(ctx, x, blocks, *params):
        with torch.no_grad():
            for block in blocks:
                x = block(x)
        ctx.blocks, ctx.y = blocks, x.detach()
        return x

    @staticmethod
    def backward(ctx, dy):
        y, found = ctx.y, []
        for block in reversed(ctx.blocks):
            with torch.no_grad():
                x = block.inverse(y)
            x = x.detach().requires_grad_(True)
            params = list(block.parameters())
            with torch.enable_grad():
                out = block(x)
            dx, *grads = torch.autograd.grad(out, [x, *params], dy)
            found = grads + found
            y, dy = x.detach(), dx
        return (dy, None, *found)


@program
def reversible_net_custom_function():
    X, Y = images("fashion-mnist", 3000)
    X = F.avg_pool2d((X.reshape(-1, 1, 28, 28) - 0.2860) / 0.3530, 2).flatten(1)

    class ReversibleBlock(nn.Module):
        def __init__(self, d):
            super().__init__()
            half = lambda: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
            self.f, self.g = half(), half()

        def forward(self, x):
            x1, x2 = x.chunk(2, 1)
            y1 = x1 + self.f(x2)
            return torch.cat([y1, x2 + self.g(y1)], 1)

        def inverse(self, y):
            y1, y2 = y.chunk(2, 1)
            x2 = y2 - self.g(y1)
            return torch.cat([y1 - self.f(x2), x2], 1)

    class RevNet(nn.Module):
        def __init__(self, d=48, depth=4):
            super().__init__()
            self.stem = nn.Linear(196, 2 * d)
            self.blocks = nn.ModuleList(ReversibleBlock(d) for _ in range(depth))
            self.norm, self.head = nn.LayerNorm(2 * d), nn.Linear(2 * d, 10)

        def forward(self, x):
            h = ReversibleFunction.apply(self.stem(x), self.blocks, *self.blocks.parameters())
            return self.head(self.norm(h))

    model = RevNet()
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    loader = DataLoader(TensorDataset(X[:2500], Y[:2500]), batch_size=64, shuffle=True)

    def train():
        model.train()
        for _ in range(8):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

    return (
        (model, X[:256], Y[:256]),
        dict(loss=F.cross_entropy, optimizer=optimizer),
        train,
        lambda: acc(model, X[2500:], Y[2500:]),
    )


# ---------------------------------------------------------------------- bags, graphs, sets


@program
def attention_mil_one_bag():
    # Ilse et al.: a bag of digits of any number at a time, positive if it holds a nine; gated attention, the log by hand
    X, Y = digits()
    X = (X - X.mean()) / X.std()

    class DigitBags(Dataset):
        def __init__(self, part, n, seed):
            g = torch.Generator().manual_seed(seed)
            nines, others = part[Y[part] == 9], part[Y[part] != 9]
            self.bags = []
            for i in range(n):
                size = int(torch.randint(4, 12, (1,), generator=g))
                rows = others[torch.randint(len(others), (size,), generator=g)]
                if i % 2:
                    k = 1 + int(torch.randint(2, (1,), generator=g))
                    rows[:k] = nines[torch.randint(len(nines), (k,), generator=g)]
                self.bags.append((rows[torch.randperm(size, generator=g)], float(i % 2)))

        def __len__(self):
            return len(self.bags)

        def __getitem__(self, i):
            rows, label = self.bags[i]
            return X[rows], torch.tensor(label)

    class GatedAttention(nn.Module):
        def __init__(self, M=48, L=32):
            super().__init__()
            self.feature_extractor = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, M), nn.ReLU())
            self.attention_V = nn.Sequential(nn.Linear(M, L), nn.Tanh())
            self.attention_U = nn.Sequential(nn.Linear(M, L), nn.Sigmoid())
            self.attention_w = nn.Linear(L, 1)
            self.classifier = nn.Sequential(nn.Linear(M, 1), nn.Sigmoid())

        def forward(self, x):
            H = self.feature_extractor(x.squeeze(0))
            A = F.softmax(self.attention_w(self.attention_V(H) * self.attention_U(H)).T, dim=1)
            Y_prob = self.classifier(A @ H)
            return Y_prob, (Y_prob >= 0.5).float(), A

    def objective(outputs, label):
        Y_prob = outputs[0].clamp(1e-5, 1 - 1e-5).squeeze()
        label = label.squeeze()
        return -(label * torch.log(Y_prob) + (1.0 - label) * torch.log(1.0 - Y_prob))

    order = torch.arange(len(X))
    train_set, test_set = DigitBags(order[:1400], 600, 67), DigitBags(order[1400:], 200, 68)
    loader = DataLoader(train_set, batch_size=1, shuffle=True)
    model = GatedAttention()
    optimizer = optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.999), weight_decay=1e-4)

    def step(model, optimizer, loss_fn, bag, label):
        optimizer.zero_grad()
        loss = loss_fn(model(bag), label)
        loss.backward()
        optimizer.step()
        return loss.item()

    def train():
        model.train()
        for _ in range(5):
            for bag, label in loader:
                step(model, optimizer, objective, bag, label)

    def score():
        with torch.no_grad():
            return np.mean([model(bag[None])[1].item() == label.item() for bag, label in test_set])

    bag, label = next(iter(loader))
    return (model, bag, label), dict(loss=objective, optimizer=optimizer, data=loader, step=step), train, score


class GraphBatch:
    """Graphs laid side by side: nodes, edges with shifted ends, and the graph of every node."""

    def __init__(self, x, edge_index, batch, y):
        self.x, self.edge_index, self.batch, self.y = x, edge_index, batch, y
        self.num_graphs = len(y)

    @classmethod
    def from_list(cls, graphs):
        xs, edges, batch, first = [], [], [], 0
        for i, (x, e, _) in enumerate(graphs):
            xs.append(x)
            edges.append(e + first)
            batch.append(torch.full((len(x),), i))
            first += len(x)
        return cls(torch.cat(xs), torch.cat(edges, 1), torch.cat(batch), torch.tensor([g[2] for g in graphs]))


@program
def gin_graphs_with_batch_vector():
    # graph classification: GIN with batch norm and jumping sums over a batch object, y inside of it, F.nll_loss of log-softmax
    rng = np.random.RandomState(69)

    def graph(kind):
        n = rng.randint(10, 21)
        edges = set()
        if kind == 0:  # a ring with chords
            edges |= {(i, (i + 1) % n) for i in range(n)}
            edges |= {tuple(sorted(rng.choice(n, 2, replace=False))) for _ in range(n // 3)}
        elif kind == 1:  # grown by preference
            ends = [0, 1]
            edges.add((0, 1))
            for i in range(2, n):
                to = int(rng.choice(ends))
                edges.add((to, i))
                ends += [to, i]
        else:  # two crowds
            for i in range(n):
                for j in range(i):
                    if rng.rand() < (0.35 if (i < n // 2) == (j < n // 2) else 0.03):
                        edges.add((j, i))
        e = torch.tensor(sorted(edges), dtype=torch.long).reshape(-1, 2).T
        e = torch.cat([e, e.flip(0)], 1)
        degree = torch.bincount(e[0], minlength=n).clamp(max=7)
        return F.one_hot(degree, 8).float(), e, kind

    graphs = [graph(i % 3) for i in range(750)]
    rng.shuffle(order := list(range(750)))
    graphs = [graphs[i] for i in order]

    class GINConv(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.eps = nn.Parameter(torch.zeros(1))
            self.mlp = nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Linear(o, o), nn.ReLU())

        def forward(self, x, edge_index):
            total = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
            return self.mlp((1 + self.eps) * x + total)

    class GIN(nn.Module):
        def __init__(self, h=24):
            super().__init__()
            self.convs = nn.ModuleList([GINConv(8, h), GINConv(h, h), GINConv(h, h)])
            self.lin1, self.lin2 = nn.Linear(3 * h, h), nn.Linear(h, 3)

        def forward(self, data):
            x, sums = data.x, []
            for conv in self.convs:
                x = conv(x, data.edge_index)
                size = torch.bincount(data.batch, minlength=data.num_graphs).unsqueeze(1)
                sums.append(torch.zeros(data.num_graphs, x.size(1)).index_add_(0, data.batch, x) / size)
            h = F.dropout(F.relu(self.lin1(torch.cat(sums, 1))), 0.3, self.training)
            return F.log_softmax(self.lin2(h), dim=1)

    loader = DataLoader(graphs[:600], batch_size=40, shuffle=True, collate_fn=GraphBatch.from_list)
    model = GIN()
    optimizer = optim.Adam(model.parameters(), lr=5e-3)

    def step(model, optimizer, loss_fn, data, _):
        optimizer.zero_grad()
        loss = loss_fn(model(data), data.y)
        loss.backward()
        optimizer.step()
        return loss.item()

    def train():
        model.train()
        for _ in range(15):
            for data in loader:
                step(model, optimizer, F.nll_loss, data, None)

    def score():
        data = GraphBatch.from_list(graphs[600:])
        model.eval()
        with torch.no_grad():
            a = (model(data).argmax(1) == data.y).float().mean().item()
        model.train()
        return a

    data = next(iter(loader))
    return (
        (model, data, data.y),
        dict(loss=F.nll_loss, optimizer=optimizer, data=lambda: ((d, d.y) for d in loader), step=step),
        train,
        score,
    )


@program
def set_prediction_targets_as_dicts():
    # DETR's matching with a small head: a fixed number of slots a picture, targets a list of dicts of different lengths
    g = torch.Generator().manual_seed(70)
    n, slots, classes = 1600, 3, 2
    images_, targets_ = 0.1 * torch.randn(n, 1, 16, 16, generator=g), []
    for i in range(n):
        boxes, labels = [], []
        for half in range(2):  # at most one thing in the upper half, one in the lower
            if half == i % 2 or torch.rand(1, generator=g) < 0.5:
                k = int(torch.randint(classes, (1,), generator=g))
                w, h = (int(v) for v in torch.randint(4, 8, (2,), generator=g))
                x = int(torch.randint(0, 17 - w, (1,), generator=g))
                y = 8 * half + int(torch.randint(0, 9 - h, (1,), generator=g))
                images_[i, 0, y : y + h, x : x + w] += 1.0 if k else -1.0
                boxes.append([(x + w / 2) / 16, (y + h / 2) / 16, w / 16, h / 16])
                labels.append(k)
        targets_.append({"labels": torch.tensor(labels), "boxes": torch.tensor(boxes)})

    class SlotDetector(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(),
            )  # fmt: skip
            self.class_embed, self.bbox_embed = nn.Linear(128, slots * (classes + 1)), nn.Linear(128, slots * 4)

        def forward(self, images):
            h = self.backbone(torch.stack(images))
            return {
                "pred_logits": self.class_embed(h).view(-1, slots, classes + 1),
                "pred_boxes": self.bbox_embed(h).view(-1, slots, 4).sigmoid(),
            }

    orders = {1: [(a,) for a in range(slots)], 2: [(a, b) for a in range(slots) for b in range(slots) if a != b]}

    class SetCriterion(nn.Module):
        def __init__(self, eos_coef=0.5):
            super().__init__()
            weight = torch.ones(classes + 1)
            weight[-1] = eos_coef
            self.register_buffer("empty_weight", weight)

        @torch.no_grad()
        def match(self, outputs, targets):
            found = []
            for probs, boxes, t in zip(outputs["pred_logits"].softmax(-1), outputs["pred_boxes"], targets):
                cost = -probs[:, t["labels"]] + 5 * torch.cdist(boxes, t["boxes"], p=1)
                k = len(t["labels"])
                choices = torch.tensor(orders[k])
                found.append(choices[cost[choices, torch.arange(k)].sum(1).argmin()])
            return found

        def forward(self, outputs, targets):
            matched = self.match(outputs, targets)
            b = torch.cat([torch.full_like(m, i) for i, m in enumerate(matched)])
            s = torch.cat(matched)
            wanted = torch.full((len(targets), slots), classes)
            wanted[b, s] = torch.cat([t["labels"] for t in targets])
            ce = F.cross_entropy(outputs["pred_logits"].transpose(1, 2), wanted, self.empty_weight)
            l1 = F.l1_loss(outputs["pred_boxes"][b, s], torch.cat([t["boxes"] for t in targets]), reduction="sum")
            return ce + 5 * l1 / len(s)

    def collate_fn(batch):
        images, targets = zip(*batch)
        return list(images), list(targets)

    model, criterion = SlotDetector(), SetCriterion()
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    pairs = list(zip(images_, targets_))
    loader = DataLoader(pairs[:1400], batch_size=32, shuffle=True, collate_fn=collate_fn)

    def train():
        model.train()
        for _ in range(12):
            for images, targets in loader:
                loss = criterion(model(images), targets)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

    def score():  # held-out things for which a slot of the right class lies within 0.08 of their box, in the mean over its sides
        model.eval()
        with torch.no_grad():
            out = model(list(images_[1400:]))
        model.train()
        hits = []
        for kind, boxes, t in zip(out["pred_logits"].argmax(-1), out["pred_boxes"], targets_[1400:]):
            near = torch.cdist(t["boxes"], boxes, p=1) / 4 < 0.08
            hits += (near & (kind[None] == t["labels"][:, None])).any(1).tolist()
        return np.mean(hits)

    images, targets = next(iter(loader))
    return (model, images, targets), dict(loss=criterion, optimizer=optimizer, data=loader), train, score


# ---------------------------------------------------------------------- streams, series, samplers


@program
def endless_stream_of_echoes():
    # an IterableDataset without an end: repeat what was heard three steps ago; training counts batches, not epochs
    symbols, delay = 6, 3

    class EchoStream(IterableDataset):
        def __init__(self, length=24):
            self.length = length

        def __iter__(self):
            while True:
                s = torch.randint(symbols, (self.length,))
                y = torch.full((self.length,), -100)
                y[delay:] = s[:-delay]
                yield F.one_hot(s, symbols).float(), y

    class EchoNet(nn.Module):
        def __init__(self, hidden=64):
            super().__init__()
            self.rnn = nn.GRU(symbols, hidden, batch_first=True)
            self.readout = nn.Linear(hidden, symbols)

        def forward(self, x):
            return self.readout(self.rnn(x)[0]).permute(0, 2, 1)  # (batch, classes, time)

    loader = DataLoader(EchoStream(), batch_size=32)
    model = EchoNet()
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = optim.RMSprop(model.parameters(), lr=2e-3)

    def train():
        model.train()
        for count, (x, y) in enumerate(loader):
            if count == 350:
                break
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    def score():
        right = []
        with torch.no_grad():
            for _, (x, y) in zip(range(10), loader):
                right.append((model(x).argmax(1) == y)[:, delay:].float().mean().item())
        return np.mean(right)

    x, y = next(iter(loader))
    return (model, x, y), dict(loss=criterion, optimizer=optimizer, data=loader), train, score


@program
def covariates_and_scheduled_sampling():
    # demand of shops: what is fixed, what was, what will be known; a decoder fed with truth or with itself by a coin whose odds decay
    g = torch.Generator().manual_seed(71)
    shops, back, ahead = 1500, 14, 7
    size, level = torch.randn(shops, generator=g), torch.randn(shops, generator=g)
    start = torch.randint(7, (shops,), generator=g)
    day = (start[:, None] + torch.arange(back + ahead)) % 7
    promo = (torch.rand(shops, back + ahead, generator=g) < 0.25).float()
    week = torch.tensor([-0.6, -0.4, -0.2, 0.0, 0.3, 0.9, 0.5])
    demand = torch.zeros(shops, back + ahead)
    drift = level.clone()
    for t in range(back + ahead):
        drift = 0.9 * drift + 0.15 * torch.randn(shops, generator=g)
        demand[:, t] = drift + week[day[:, t]] * (1 + 0.3 * size) + 0.8 * promo[:, t]
    demand = (demand - demand[:1200].mean()) / demand[:1200].std()
    known = torch.cat([F.one_hot(day, 7).float(), promo[..., None]], 2)
    static = size[:, None]
    past = torch.cat([demand[:, :back, None], known[:, :back]], 2)
    future, y = known[:, back:], demand[:, back:]

    class Shops(Dataset):
        def __len__(self):
            return 1200

        def __getitem__(self, i):
            return (static[i], past[i], future[i]), y[i]

    class Seq2SeqForecaster(nn.Module):
        def __init__(self, h=40):
            super().__init__()
            self.init = nn.Linear(1, h)
            self.encoder = nn.GRU(9, h, batch_first=True)
            self.cell = nn.GRUCell(9, h)
            self.out = nn.Linear(h, 1)

        def forward(self, static, past, future, target=None, p=0.0):
            _, h = self.encoder(past, torch.tanh(self.init(static))[None])
            h, last, outs = h[0], past[:, -1, :1], []
            for t in range(future.size(1)):
                h = self.cell(torch.cat([last, future[:, t]], 1), h)
                last = self.out(h)
                outs.append(last)
                if target is not None and random.random() < p:
                    last = target[:, t : t + 1]
            return torch.cat(outs, 1)

    loader = DataLoader(Shops(), batch_size=50, shuffle=True)
    model = Seq2SeqForecaster()
    criterion = nn.SmoothL1Loss()
    optimizer = optim.NAdam(model.parameters(), lr=4e-3)
    seen = [0]

    def step(model, optimizer, criterion, x, y):
        k = 60.0
        p = k / (k + math.exp(seen[0] / k))  # inverse sigmoid
        seen[0] += 1
        optimizer.zero_grad()
        loss = criterion(model(*x, target=y, p=p), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    def train():
        model.train()
        for _ in range(16):
            for x, t in loader:
                step(model, optimizer, criterion, x, t)

    def score():  # held-out shops, fed with its own forecasts
        with torch.no_grad():
            return explained(model(static[1200:], past[1200:], future[1200:]).flatten(), y[1200:].flatten())

    x, t = next(iter(loader))
    return (model, tuple(x), t), dict(loss=criterion, optimizer=optimizer, data=loader, step=step), train, score


@program
def compiled_model_weighted_sampler():
    # rare classes drawn as often as the others by WeightedRandomSampler, the model compiled
    X, Y = images("fashion-mnist", 6000)
    X = F.avg_pool2d((X.reshape(-1, 1, 28, 28) - 0.2860) / 0.3530, 2)
    g = torch.Generator().manual_seed(72)
    share = torch.where(Y < 5, 1.0, 0.12)
    share[5000:] = 1.0
    kept = torch.rand(6000, generator=g) < share
    train_part, test_part = kept & (torch.arange(6000) < 5000), torch.arange(6000) >= 5000
    Xt, Yt = X[train_part], Y[train_part]
    counts = torch.bincount(Yt, minlength=10)
    sampler = WeightedRandomSampler((1.0 / counts.double())[Yt], num_samples=len(Yt), replacement=True)
    loader = DataLoader(TensorDataset(Xt, Yt), batch_size=64, sampler=sampler, drop_last=True)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 9, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip
    model = torch.compile(net, backend="eager")
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()

    def train():
        model.train()
        for _ in range(8):
            for x, y in loader:
                optimizer.zero_grad(set_to_none=True)
                criterion(model(x), y).backward()
                optimizer.step()

    def score():  # all classes alike, held-out
        return acc(model, X[test_part], Y[test_part])

    x, y = next(iter(loader))
    return (model, x, y), dict(loss=criterion, optimizer=optimizer, data=loader), train, score


# ---------------------------------------------------------------------- control


@program
def decision_transformer_returns_to_go():
    # logged walks of walkers of every skill; tokens of return, state and action in turn, the action read off the state's token
    g = torch.Generator().manual_seed(73)
    n, T, places = 1500, 8, 9

    def act(pos, goal, a):
        pos = (pos + a - 1).clamp(0, places - 1)
        return pos, 1.0 - (pos - goal).abs().float() / (places - 1)

    goal, pos = torch.randint(places, (n,), generator=g), torch.randint(places, (n,), generator=g)
    skill = torch.rand(n, generator=g)
    states, actions, rewards = torch.zeros(n, T, 2), torch.zeros(n, T, dtype=torch.long), torch.zeros(n, T)
    scale = (places - 1) / 2
    for t in range(T):
        states[:, t] = torch.stack([pos / scale - 1, goal / scale - 1], 1)
        best = (goal - pos).sign() + 1
        a = torch.where(torch.rand(n, generator=g) < skill, best, torch.randint(3, (n,), generator=g))
        actions[:, t] = a
        pos, rewards[:, t] = act(pos, goal, a)
    to_go = rewards.flip(1).cumsum(1).flip(1) / T

    class DecisionTransformer(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.embed_timestep, self.embed_return = nn.Embedding(T, d), nn.Linear(1, d)
            self.embed_state, self.embed_action = nn.Linear(2, d), nn.Embedding(3, d)
            self.embed_ln = nn.LayerNorm(d)
            layer = nn.TransformerEncoderLayer(d, 2, 64, 0.1, "gelu", batch_first=True, norm_first=True)
            self.transformer = nn.TransformerEncoder(layer, 2, nn.LayerNorm(d), enable_nested_tensor=False)
            self.predict_action = nn.Linear(d, 3)

        def forward(self, states, actions, returns_to_go, timesteps):
            B, L = actions.shape
            time = self.embed_timestep(timesteps)
            tokens = torch.stack(
                [
                    self.embed_return(returns_to_go[..., None]) + time,
                    self.embed_state(states) + time,
                    self.embed_action(actions) + time,
                ],
                dim=2,
            ).reshape(B, 3 * L, -1)
            mask = torch.ones(3 * L, 3 * L, dtype=torch.bool).triu(1)
            h = self.transformer(self.embed_ln(tokens), mask=mask)
            return self.predict_action(h[:, 1::3])

    class Walks(Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            batch = dict(states=states[i], actions=actions[i], returns_to_go=to_go[i], timesteps=torch.arange(T))
            return batch, actions[i]

    def loss_fn(logits, a):
        return F.cross_entropy(logits.reshape(-1, 3), a.reshape(-1))

    loader = DataLoader(Walks(), batch_size=64, shuffle=True)
    model = DecisionTransformer()
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)

    def step(model, optimizer, loss_fn, batch, a):
        loss = loss_fn(model(**batch), a)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss.detach().item()

    def train():
        model.train()
        for _ in range(12):
            for batch, a in loader:
                step(model, optimizer, loss_fn, batch, a)

    def score():  # what 200 new walks reach when asked for the best: 0 for pushing at random, 1 for going straight
        h = torch.Generator().manual_seed(74)
        goal, begin = torch.randint(places, (200,), generator=h), torch.randint(places, (200,), generator=h)
        model.eval()

        def walk(policy):
            pos, s, a, total = begin, torch.zeros(200, T, 2), torch.zeros(200, T, dtype=torch.long), torch.zeros(200)
            straight = torch.stack(
                [(1 - ((goal - begin).abs() - k - 1).clamp(min=0) / (places - 1)) for k in range(T)], 1
            )
            ask = straight.sum(1)
            rtg = torch.zeros(200, T)
            for t in range(T):
                s[:, t] = torch.stack([pos / scale - 1, goal / scale - 1], 1)
                rtg[:, t] = (ask - total) / T
                a[:, t] = policy(s, a, rtg, t, pos)
                pos, r = act(pos, goal, a[:, t])
                total = total + r
            return total.mean().item()

        with torch.no_grad():
            times = torch.arange(T).expand(200, -1)
            mine = walk(
                lambda s, a, r, t, p: model(s[:, : t + 1], a[:, : t + 1], r[:, : t + 1], times[:, : t + 1])[
                    :, -1
                ].argmax(1)
            )
        best = walk(lambda s, a, r, t, p: (goal - p).sign() + 1)
        chance = np.mean([walk(lambda s, a, r, t, p: torch.randint(3, (200,), generator=h)) for _ in range(5)])
        model.train()
        return (mine - chance) / (best - chance)

    batch, a = next(iter(loader))
    return (model, batch, a), dict(loss=loss_fn, optimizer=optimizer, data=loader, step=step), train, score
