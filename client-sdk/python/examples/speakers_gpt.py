"""A language model for each speaker: a GPT of a million parameters learns plays without the lines of some speakers. These speakers then
take part in a federation, masked: each trains adapters of its own on its first lines, beside a common model, and its last lines judge them.

Start `tributary serve --dev` and set TRIBUTARY_SERVER, TRIBUTARY_CA and TRIBUTARY_TOKEN as it prints them. Needs torch, onnx, onnxscript,
tokenizers, and the plays as one text in the form of tiny-shakespeare: a line `SPEAKER:` after an empty line, then what is said.
"""

import argparse
import os
import pathlib
import tempfile
import threading

import numpy as np
import tokenizers
import torch
import tributary as tb
from torch import nn

TASK, HEADS, LENGTH, TOKENS = "speakers", 4, 64, 1024
#: The share of a speaker's sequences, the last ones, that judge.
HELD_OUT = 0.2
ADAPTERS = {"method": "lora", "layers": ["blocks.*.weight", "head.weight"], "rank": 8, "alpha": 16.0, "epochs": 1}
PLAN = {"epochs": 1, "batch_size": 16, "learning_rate": 0.001, "optimizer": {"name": "adamw"}}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, hidden):
        y = self.norm(x)
        query, key, value = (part(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = (query @ key.transpose(-1, -2) * (HEADS / x.shape[-1]) ** 0.5 + hidden).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.last_norm(x))))


class Gpt(nn.Module):
    """Scores of the next token at each position of a sequence."""

    def __init__(self, tokens, blocks, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(LENGTH, width)
        self.blocks, self.norm = nn.ModuleList(Block(width) for _ in range(blocks)), nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)
        for name, value in self.named_parameters():
            if value.dim() == 2:
                nn.init.normal_(value, std=0.02 / (2 * blocks) ** 0.5 if name.endswith(("out.weight", "narrow.weight")) else 0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight
        hidden = torch.full((LENGTH, LENGTH), -1e4).triu(1)
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x))


def speeches(file):
    """What each speaker says, by name."""
    says, speaker, after_blank = {}, None, True
    for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines():
        if after_blank and line.endswith(":"):
            speaker = says.setdefault(line[:-1].strip(), [])
        elif line.strip() and speaker is not None:
            speaker.append(line + "\n")
        after_blank = not line.strip()
    return {name: "".join(lines) for name, lines in says.items()}


def tokenizer_of(text):
    """Frequent pieces of words, with a space before the first of a word."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def sequences(numbers):
    """A text's tokens in sequences, and the next token at each position."""
    count = (len(numbers) - 1) // LENGTH
    return tuple(numbers[start : start + count * LENGTH].reshape(count, LENGTH) for start in (0, 1))


def split(ids, targets):
    """The first sequences, to train on, and the last."""
    kept = len(ids) - max(round(HELD_OUT * len(ids)), 1)
    return (ids[:kept], targets[:kept]), (ids[kept:], targets[kept:])


def nats(scores, targets):
    """The mean loss of a token."""
    return float(nn.functional.cross_entropy(torch.as_tensor(scores).flatten(0, 1), torch.as_tensor(targets).flatten()))


def loss(net, ids, targets):
    """The mean loss of a token, in batches."""
    with torch.no_grad():
        return nats(torch.cat([net(torch.from_numpy(some)) for some in np.array_split(ids, -(-len(ids) // 64))]), targets)


def pretrain(net, numbers, steps):
    """Trains on a text, in places that are drawn, by AdamW with a rate that rises and falls. Its last twentieth chooses the best of ten
    moments."""
    kept = len(numbers) - len(numbers) // 20
    numbers, judge = numbers[:kept], sequences(numbers[kept:])
    draws, best = np.random.default_rng(1), (np.inf, None)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.002, betas=(0.9, 0.99), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.002, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        places = draws.integers(0, len(numbers) - LENGTH - 1, 32)[:, None] + np.arange(LENGTH)
        found = nn.functional.cross_entropy(net(torch.from_numpy(numbers[places])).flatten(0, 1), torch.from_numpy(numbers[places + 1]).flatten())
        optimizer.zero_grad()
        found.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % (steps // 10) == 0:
            judged = loss(net, *judge)
            print(f"pretraining, step {step} of {steps}: {found.item():.4f} nats a token, {judged:.4f} on text kept back", flush=True)
            if judged < best[0]:
                best = judged, {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(best[1])


def site(folder, name, token, lines, last, turn, found):
    """A device: no PyTorch."""
    with tb.participant(task=TASK, journal=folder / name, token=token, trains_adapters=True, quiet=True) as me:
        for task in me.tasks():
            with turn:  # One after the other: all sites share this machine.
                task.train(*lines, held_out=last)
        found[name] = nats(me.model(TASK).predict(last[0]), last[1])


def federated(model, folder, parts, rounds):
    """The loss of each speaker's own model on its last lines."""
    operator = tb.Operator(os.environ["TRIBUTARY_SERVER"], ca=os.environ["TRIBUTARY_CA"])
    spec = {
        "name": TASK,
        "personalization": ADAPTERS,
        "rounds": {"count": rounds, "select_max": len(parts), "collect_deadline_ms": 3_600_000},
        "selection": {"cohort": {"count": len(parts)}},
        "training": PLAN,
        "aggregation": {"clip_range": 8.0},
        "metrics": ["train_loss", "loss", "personal_loss"],
    }
    operator.create(spec, model=model)
    turn, found = threading.Lock(), {}
    threads = [
        threading.Thread(target=site, args=(folder, f"site-{number}", operator.enroll(f"site-{number}"), *part, turn, found))
        for number, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for round in operator.watch(TASK):
        print(f"round {round['number']}: {round['metrics']['loss']['value']:.1f} nats a token by the common model before it", flush=True)
    for thread in threads:
        thread.join()
    return [found[f"site-{number}"] for number in range(len(parts))]


def main():
    options = argparse.ArgumentParser(description="a GPT adapted to speakers of plays")
    options.add_argument("plays", help="the file of the plays")
    options.add_argument("--base", help="a file that keeps the pretrained model, and is read if it exists")
    for name, default in {"speakers": 100, "rounds": 3, "blocks": 4, "width": 128, "steps": 600}.items():
        options.add_argument(f"--{name}", type=int, default=default)
    given = options.parse_args()
    torch.manual_seed(1)
    says = speeches(given.plays)
    order = sorted(says, key=lambda name: -len(says[name]))
    chosen, others = order[: given.speakers], "".join(says[name] for name in order[given.speakers :])
    tokenizer = tokenizer_of(others)
    numbers = {name: np.array(tokenizer.encode(says[name]).ids) for name in chosen}
    parts = [split(*sequences(numbers[name])) for name in chosen]
    net = Gpt(tokenizer.get_vocab_size(), given.blocks, given.width)
    print(f"{sum(value.numel() for value in net.parameters())} parameters; {len(chosen)} of {len(order)} speakers are held out", flush=True)
    if given.base and os.path.exists(given.base):
        net.load_state_dict(torch.load(given.base))
    else:
        pretrain(net, np.array(tokenizer.encode(others).ids), given.steps)
        if given.base:
            torch.save(net.state_dict(), given.base)
    base = [loss(net, *last) for _, last in parts]
    model = tb.task_from(net.eval(), {"ids": torch.from_numpy(parts[0][0][0][:2])}, loss="next_token")
    with tempfile.TemporaryDirectory() as folder:
        own = federated(model, pathlib.Path(folder), parts, given.rounds)
    for name, before, after in zip(chosen, base, own):
        print(f"{name}: {before:.4f} nats a token by the base, {after:.4f} by its own model")
    weights = [len(last[0]) for _, last in parts]
    before, after = (float(np.average(losses, weights=weights)) for losses in (base, own))
    size = sum(len(says[name]) for name in chosen) / sum(len(numbers[name]) for name in chosen)
    print(f"a token has {size:.2f} characters")
    print(f"all: {before:.4f} nats a token by the base, {after:.4f} by their own models, {before - after:.4f} less")


if __name__ == "__main__":
    main()
