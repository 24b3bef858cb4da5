#!/usr/bin/env python3
"""Networks that travel as graphs, learnt by ten sites under secure aggregation, beside the same training in one place: learning.py [NAME…].

Start `tributary serve --dev` and set TRIBUTARY_SERVER, TRIBUTARY_CA and TRIBUTARY_TOKEN as it prints them, and MNIST to the folder
`datasets/mnist10k`. Needs torch, onnx, onnxscript and scikit-learn. The training in one place is an unmasked task with a single site and the
same settings, but for the number of rounds: sites take a tenth of its steps in each. Prints the measure on examples that nobody trains on.
"""

import gzip
import os
import pathlib
import sys
import tempfile
import threading

import numpy as np
import torch
import tributary as tb
from torch import nn

SITES = 10


class Block(nn.Module):
    """A block of ResNet with group normalization."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.first, self.norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.GroupNorm(4, after)
        self.second, self.last = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.GroupNorm(4, after)
        self.short = nn.Sequential() if stride == 1 else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.last(self.second(torch.relu(self.norm(self.first(x))))) + self.short(x))


def resnet8():
    start = [nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.GroupNorm(4, 8), nn.ReLU()]
    blocks = [Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)]
    return nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Factors(nn.Module):
    """A recommender: the product of a user's and a film's vector, and a bias for each."""

    def __init__(self, users, items, rank):
        super().__init__()
        self.users, self.items = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for part in (self.users, self.items):
            nn.init.normal_(part.weight, std=0.3)
        for part in (self.user_bias, self.item_bias):
            nn.init.zeros_(part.weight)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(1) + (self.user_bias(user) + self.item_bias(item)).squeeze(1)


class Lstm(nn.Module):
    """Reads an image row by row."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(28, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, rows):
        return self.head(self.layer(rows)[0][:, -1])


def mnist(count):
    """So many images of the test set, and their digits."""
    folder = pathlib.Path(os.environ["MNIST"])

    def read(name, skip):
        with gzip.open(folder / name) as file:
            return np.frombuffer(file.read()[skip:], np.uint8)

    images = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28).astype("f4") / 255
    return images[:count], read("t10k-labels-idx1-ubyte.gz", 8)[:count].astype("i8")


def digits():
    images, classes = mnist(10_000)
    return resnet8(), {"x": images[:, None]}, classes, 9_000


def rows():
    images, classes = mnist(10_000)
    return Lstm(), {"rows": images}, classes, 9_000


def diabetes():
    from sklearn.datasets import load_diabetes

    table = load_diabetes()
    numbers = ((table.data - table.data.mean(0)) / table.data.std(0)).astype("f4")
    progress = ((table.target - table.target.mean()) / table.target.std()).astype("f4")
    order = np.random.default_rng(1).permutation(len(numbers))
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    return net, {"x": numbers[order]}, progress[order], 350


def ratings():
    """Ratings that a recommender of rank 4 would give, with noise: 400 users, each with 30 of 100 films."""
    draws = np.random.default_rng(1)
    users, items = draws.normal(size=(400, 4)).astype("f4"), draws.normal(size=(100, 4)).astype("f4") / 2
    pairs = draws.permutation([(user, item) for user in range(400) for item in draws.choice(100, 30, replace=False)])
    user, item = pairs.T
    stars = (users[user] * items[item]).sum(1) + draws.normal(scale=0.3, size=len(pairs)).astype("f4")
    return Factors(400, 100, 8), {"user": user.copy(), "item": item.copy()}, stars.astype("f4"), 10_000


def by_class(targets, count):
    """Sites with unlike shares of the classes: half of each site's examples are of two classes."""
    draws, chosen = np.random.default_rng(2), [[] for _ in range(SITES)]
    for number, example in enumerate(draws.permutation(count)):
        own = int(targets[example]) if number % 2 else number // 2
        chosen[own % SITES].append(example)
    return [np.array(rows) for rows in chosen]


def in_turn(_, count):
    return [np.arange(site, count, SITES) for site in range(SITES)]


#: By name: what makes the network and the data, the loss, how sites differ, rounds in one place and of the sites, and the plan.
CASES = {
    "resnet8": (digits, "cross_entropy", by_class, (6, 60), {"epochs": 2, "batch_size": 32, "learning_rate": 0.1}),
    "regression": (diabetes, "mse", in_turn, (20, 80), {"epochs": 1, "batch_size": 16, "learning_rate": 0.02}),
    "recommender": (ratings, "mse", in_turn, (60, 200), {"epochs": 2, "batch_size": 8, "learning_rate": 0.1}),
    "lstm": (rows, "cross_entropy", by_class, (10, 40), {"epochs": 2, "batch_size": 16, "learning_rate": 0.3}),
}


def site(folder, name, token, task, inputs, targets, options, turn):
    with tb.participant(task=task, journal=folder / name, token=token, quiet=True, **options) as me:
        for one in me.tasks():
            with turn:  # One after the other: all sites share this machine.
                one.train(inputs, targets)


def trained(operator, folder, name, model, parts, rounds, plan):
    """The published tensors after so many rounds of sites with these inputs and targets."""
    alone = len(parts) == 1
    spec = {
        "name": name,
        "rounds": {"count": rounds, "select_max": len(parts), "collect_deadline_ms": 3_600_000},
        "selection": {"cohort": {"count": len(parts)}},
        "training": plan,
        "aggregation": {"clip_range": 16.0},
        "metrics": ["train_loss"],
        **({"secure_aggregation": {"enabled": False}} if alone else {}),
    }
    operator.create(spec, model=model)
    options, turn = {"secure_aggregation": {"required": False}} if alone else {}, threading.Lock()
    threads = [
        threading.Thread(target=site, args=(folder, f"{name}-{number}", operator.enroll(), name, *part, options, turn))
        for number, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for ended in operator.watch(name):
        print(f"  {name}: round {ended['number']}, training loss {ended['metrics']['train_loss']['value']:.4f}", file=sys.stderr, flush=True)
    for thread in threads:
        thread.join()
    return operator.model(name)


def measured(net, tensors, inputs, targets, loss):
    """The share of right classes, or the root of the mean squared error."""
    net.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    with torch.no_grad():
        found = net(*(torch.from_numpy(array) for array in inputs.values())).numpy()
    if loss == "cross_entropy":
        return float((found.argmax(1) == targets).mean())
    return float(np.sqrt(np.mean((found - targets) ** 2)))


def main():
    operator = tb.Operator(os.environ["TRIBUTARY_SERVER"], os.environ["TRIBUTARY_TOKEN"], ca=os.environ["TRIBUTARY_CA"])
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        make, loss, divide, rounds, plan = CASES[name]
        torch.manual_seed(1)
        net, inputs, targets, count = make()
        model = tb.task_from(net, tuple(torch.from_numpy(array[:4]) for array in inputs.values()), loss=loss)
        inputs = dict(zip((one.name for one in model.inputs), inputs.values()))

        def part(chosen):
            return {name: array[chosen] for name, array in inputs.items()}, targets[chosen]

        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            pooled = trained(operator, folder, f"{name}-pooled", model, [part(slice(0, count))], rounds[0], plan)
            parts = [part(chosen) for chosen in divide(targets, count)]
            federated = trained(operator, folder, f"{name}-federated", model, parts, rounds[1], plan)
        test = part(slice(count, None))
        one, many = (measured(net, tensors, *test, loss) for tensors in (pooled, federated))
        size = sum(array.size for array in model.tensors.values())
        print(f"{name}, {size} parameters: {SITES} sites {many:.4f}, in one place {one:.4f}", flush=True)


if __name__ == "__main__":
    main()
