#!/usr/bin/env python3
"""Samples per second of PyTorch's training of the ready models on a device: the other side of `device-training` of client-sdk.

    torch_training.py [device=cuda] [models=mlp,cnn] [batches=32,256] [precisions=f32,bf16,f16] [seconds=2]

The same models and the same plain SGD on 600 random examples, which are in the device's memory already. In 16 bits: autocast over
parameters of 32 bits, for f16 with PyTorch's own loss scale. Prints a JSON object a line, best of three turns. Status 77: there
is no PyTorch, or it does not see the device.
"""
import json
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"SKIPPED: no PyTorch here ({error})", file=sys.stderr)
    sys.exit(77)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru, self.out = nn.Embedding(80, 8), nn.GRU(8, 128, batch_first=True), nn.Linear(128, 80)

    def forward(self, x):
        return self.out(self.gru(self.embedding(x))[0]).flatten(0, 1)


def model(name):
    if name == "linear":
        return nn.Linear(784, 10)
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    if name == "cnn":
        first = nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
        second = nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
        return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))
    if name == "gru":
        return Gru()
    sys.exit(f'there is no model "{name}"')


def examples(name, device):
    if name == "gru":
        return [torch.randint(0, 80, (600, 80), device=device) for _ in range(2)]
    x = torch.randn(600, 784, device=device)
    return x.view(600, 1, 28, 28) if name == "cnn" else x, torch.randint(0, 10, (600,), device=device)


class Training:
    def __init__(self, name, batch, precision, device):
        torch.manual_seed(0)
        self.net, (self.x, self.y) = model(name).to(device), examples(name, device)
        self.sgd, self.batch, self.device, self.at = torch.optim.SGD(self.net.parameters(), lr=0.01), batch, device, 0
        self.narrow = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}[precision]
        # Before PyTorch 2.3 it was CUDA's alone.
        scaler = getattr(torch.amp, "GradScaler", None) or (lambda _, enabled: torch.cuda.amp.GradScaler(enabled=enabled))
        self.scale = scaler(device, enabled=precision == "f16")

    def step(self):
        self.at = self.at if self.at + self.batch <= len(self.x) else 0
        x, y = (all_of_them[self.at : self.at + self.batch] for all_of_them in (self.x, self.y))
        self.at += self.batch
        self.sgd.zero_grad()
        with torch.autocast(self.device, dtype=self.narrow, enabled=self.narrow is not None):
            loss = F.cross_entropy(self.net(x), y.flatten())
        self.scale.scale(loss).backward()
        self.scale.step(self.sgd)
        self.scale.update()

    def seconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def main():
    wanted = {"device": "cuda", "models": "linear,mlp,cnn,gru", "batches": "10,32,256", "precisions": "f32,bf16,f16", "seconds": "2"}
    wanted |= dict(argument.split("=", 1) for argument in sys.argv[1:])
    device = wanted["device"]
    if device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no GPU", file=sys.stderr)
        sys.exit(77)
    for name in wanted["models"].split(","):
        for batch in map(int, wanted["batches"].split(",")):
            for precision in wanted["precisions"].split(","):
                line = {"what": "torch", "version": torch.__version__, "model": name, "batch": batch, "precision": precision}
                try:
                    training, steps = Training(name, batch, precision, device), 20
                    while training.seconds(steps) < float(wanted["seconds"]) / 2:
                        steps *= 2
                    best = min(training.seconds(steps) for _ in range(3))
                    line["samples_per_s"] = round(steps * batch / best)
                except RuntimeError as error:
                    line["error"] = str(error).splitlines()[0]
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
