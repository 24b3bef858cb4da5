"""The networks of `speed.rs` in PyTorch: training examples per CPU-second on one thread."""

import sys
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.set_flush_denormal(True)


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.maps = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (m(h).unflatten(2, (4, 16)).transpose(1, 2) for m in self.maps[:3])
        h = (q @ k.transpose(2, 3)).softmax(3) @ v
        return x + self.maps[3](h.transpose(1, 2).flatten(2))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell, self.out = kind(8, 128, batch_first=True), nn.Linear(128, 80, bias=False)

    def forward(self, x):
        return self.out(self.cell(x)[0])


def feed():
    return Residual(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))


def pair(i, o, k, p):
    return [nn.Conv2d(i, o, k, padding=p), nn.ReLU(), nn.MaxPool2d(2)]


S = nn.Sequential
NETS = {
    "mlp": (S(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), (32, 784)),
    "transformer": (S(Attention(), feed(), Attention(), feed()), (16, 64, 64)),
    "gru": (Recurrent(nn.GRU), (16, 80, 8)),
    "lstm": (Recurrent(nn.LSTM), (16, 80, 8)),
    "cnn": (S(*pair(1, 32, 5, 2), *pair(32, 64, 5, 2), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10)), (32, 1, 28, 28)),
    "lenet": (S(*pair(1, 6, 5, 2), *pair(6, 16, 5, 0), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10)), (32, 1, 28, 28)),
    "resnet": (Residual(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)), (16, 64, 16, 16)),
    "mobilenet": (Residual(nn.Conv2d(16, 64, 1), nn.Hardswish(), nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.Hardswish(), nn.Conv2d(64, 16, 1)), (16, 16, 24, 24)),
}
for name in sys.argv[1:] or NETS:
    net, shape = NETS[name]
    x, best = torch.rand(shape), 0
    for _ in range(3):
        began, steps = time.process_time(), 0
        while time.process_time() - began < 1:
            net.zero_grad()
            y = net(x)
            y.backward(y.detach())
            steps += 1
        best = max(best, steps * shape[0] / (time.process_time() - began))
    print(name, f"{best:.0f}", flush=True)
