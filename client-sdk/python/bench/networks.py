#!/usr/bin/env python3
"""Thirteen networks of PyTorch as graphs: networks.py [NAME…]. Needs torch, onnx, onnxscript and onnxruntime.

Each network is exported twice. `task_from` exports it by names and compares outputs and gradients with PyTorch's. `import_onnx` reads the
file of the older exporter (TorchScript). Both graphs compute the outputs that ONNX Runtime computes from these files. Prints the largest
difference of an output and of a gradient, relative to the largest number of each.
"""

import io
import sys
import warnings

import numpy as np
import onnxruntime
import torch
import tributary as tb
from torch import nn
from torch.nn import functional as F

#: Largest differences that are allowed.
OUTPUT, GRADIENT = 1e-5, 1e-4


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.dense = nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.first(x)), 2)
        return self.dense(F.max_pool2d(torch.relu(self.second(x)), 2).flatten(1))


class Residual(nn.Module):
    """A block of ResNet with batch normalization."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.first, self.norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.second, self.last = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.short = nn.Sequential()
        if before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.last(self.second(torch.relu(self.norm(self.first(x))))) + self.short(x))


def resnet():
    start = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
    return nn.Sequential(*start, Residual(8, 8, 1), Residual(8, 16, 2), *end)


class MobileNet(nn.Module):
    """A block of MobileNetV3 with squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.expand, self.norm = nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24)
        self.depth, self.depth_norm = nn.Conv2d(24, 24, 5, 2, 2, groups=24, bias=False), nn.BatchNorm2d(24)
        self.squeeze, self.excite = nn.Conv2d(24, 8, 1), nn.Conv2d(8, 24, 1)
        self.project, self.last_norm = nn.Conv2d(24, 12, 1, bias=False), nn.BatchNorm2d(12)
        self.last = nn.Linear(12, 5)

    def forward(self, x):
        x = F.hardswish(self.depth_norm(self.depth(F.hardswish(self.norm(self.expand(x))))))
        x = x * F.hardsigmoid(self.excite(torch.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        return self.last(self.last_norm(self.project(x)).mean([2, 3]))


class Recurrent(nn.Module):
    """Embedding, recurrent layers, and a head for the last position or for each."""

    def __init__(self, layers, width, last):
        super().__init__()
        self.words, self.layers, self.last = nn.Embedding(30, 8), layers, last
        self.head = nn.Linear(width, 5 if last else 30)

    def forward(self, ids):
        found, _ = self.layers(self.words(ids))
        return self.head(found[:, -1] if self.last else found)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(40, 16), nn.Parameter(torch.randn(1, 12, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 3)

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids) + self.positions[:, : ids.shape[1]]).mean(1))


class Causal(nn.Module):
    """A block of a GPT."""

    def __init__(self):
        super().__init__()
        self.norm, self.joint, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(approximate="tanh"), nn.Linear(64, 16))

    def forward(self, x):
        parts = self.joint(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.wide(x)


class Gpt(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 16), nn.Embedding(16, 16)
        self.blocks, self.norm = nn.Sequential(Causal(), Causal()), nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.words(ids) + self.positions.weight[: ids.shape[1]])))


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.ModuleList(nn.Embedding(count, 4) for count in (7, 5)), nn.BatchNorm1d(6)
        self.layers = nn.Sequential(nn.Linear(14, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 1))

    def forward(self, numbers, classes):
        columns = [words(classes[:, column]) for column, words in enumerate(self.words)]
        return self.layers(torch.cat([*columns, self.norm(numbers)], 1)).squeeze(1)


class Factors(nn.Module):
    """A recommender by matrix factorization."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(20, 8), nn.Embedding(30, 8)
        self.user_bias, self.item_bias = nn.Embedding(20, 1), nn.Embedding(30, 1)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(1) + (self.user_bias(user) + self.item_bias(item)).squeeze(1)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (nn.Conv2d(*size, 3, padding=1) for size in ((1, 4), (4, 8), (12, 1)))
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        fine = torch.relu(self.first(x))
        coarse = F.silu(self.norm(self.second(F.avg_pool2d(fine, 2))))
        return self.last(torch.cat([fine, F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)], 1))


def autoencoder():
    down = [nn.Conv2d(1, 4, 3, 2, 1), nn.ELU(), nn.Conv2d(4, 8, 3, 2, 1), nn.LeakyReLU(0.1)]
    up = [nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1), nn.ReLU(), nn.Upsample(scale_factor=2)]
    return nn.Sequential(*down, *up, nn.Conv2d(4, 1, 3, padding=1), nn.Sigmoid())


def mlp():
    layers = [nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)]
    return nn.Sequential(*layers)


def keyword():
    """Convolutions over frames of sound."""
    first = [nn.Conv1d(10, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2)]
    second = [nn.Conv1d(16, 16, 3, padding=1, groups=4), nn.Hardtanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(16, 6), nn.LogSoftmax(1))


def lstm():
    return Recurrent(nn.LSTM(8, 12, num_layers=2, batch_first=True, bidirectional=True), 24, last=True)


def gru():
    return Recurrent(nn.GRU(8, 12, batch_first=True), 12, last=False)


def ids(most, *shape):
    return torch.randint(0, most, shape)


#: By name: what makes the network, its inputs, and its loss.
NETWORKS = {
    "mlp": (mlp, [lambda: torch.randn(4, 20)], "cross_entropy"),
    "lenet": (LeNet, [lambda: torch.randn(3, 1, 28, 28)], "cross_entropy"),
    "resnet": (resnet, [lambda: torch.randn(2, 3, 32, 32)], "cross_entropy"),
    "mobilenet": (MobileNet, [lambda: torch.randn(2, 8, 12, 12)], "cross_entropy"),
    "lstm": (lstm, [lambda: ids(30, 3, 9)], "cross_entropy"),
    "gru": (gru, [lambda: ids(30, 3, 9)], "next_token"),
    "encoder": (Encoder, [lambda: ids(40, 3, 10)], "cross_entropy"),
    "gpt": (Gpt, [lambda: ids(50, 2, 12)], "next_token"),
    "table": (Table, [lambda: torch.randn(5, 6), lambda: torch.stack([ids(7, 5), ids(5, 5)], 1)], "mse"),
    "autoencoder": (autoencoder, [lambda: torch.rand(2, 1, 16, 16)], "mse"),
    "factors": (Factors, [lambda: ids(20, 6), lambda: ids(30, 6)], "mse"),
    "unet": (UNet, [lambda: torch.randn(2, 1, 8, 8)], "mse"),
    "keyword": (keyword, [lambda: torch.randn(3, 10, 20)], "cross_entropy"),
}


def difference(found, expected):
    """The largest difference, relative to the largest number."""
    if found.shape != expected.shape:
        raise SystemExit(f"shapes differ: {found.shape} and {expected.shape}")
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-3))


def gradients(network, model, given):
    """The largest difference of a gradient from PyTorch's. One below 1 % of the largest is the rest of a sum that cancels."""
    from tributary.inputs import feed

    output = network(*given)
    weights = torch.randn_like(output)
    named = {name: value for name, value in network.named_parameters() if name in model.tensors}
    expected = dict(zip(named, torch.autograd.grad((output * weights).sum(), list(named.values()), allow_unused=True)))
    expected = {name: np.zeros(model.tensors[name].shape, "f4") if value is None else value.numpy() for name, value in expected.items()}
    least = 0.01 * max(np.abs(value).max() for value in expected.values())
    fed = feed(model.inputs, {one.name: value.numpy() for one, value in zip(model.inputs, given)})
    found = model._gradient(model._flat(), fed, weights.numpy())
    return max(float(np.abs(found[name] - value).max() / max(np.abs(value).max(), least)) for name, value in expected.items())


def computed(file, given):
    """The first output by ONNX Runtime, without its own optimization."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: value.numpy() for one, value in zip(session.get_inputs(), given)})[0]


def older(network, given):
    """The file of the exporter by TorchScript."""
    file, names = io.BytesIO(), [f"input{number}" for number in range(len(given))]
    torch.onnx.export(
        network, tuple(given), file, dynamo=False, input_names=names, output_names=["out"], opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, dynamic_axes={name: {0: "batch"} for name in [*names, "out"]},
    )
    return file.getvalue()


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    failed = []
    print("network, tensors; task_from: output, gradient; TorchScript: output")
    for name in sys.argv[1:] or NETWORKS:
        make, inputs, loss = NETWORKS[name]
        torch.manual_seed(1)
        network, given = make(), [one() for one in inputs]
        for part in network.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.running_mean.normal_(0, 0.3), part.running_var.uniform_(0.5, 2)
        with torch.no_grad():  # As after training: the older exporter merges parameters that are equal.
            for value in network.parameters():
                value.add_(0.05 * torch.randn_like(value))
        network.eval()
        from tributary.torch_module import _example, _exported

        model = tb.task_from(network, tuple(given), loss=loss)
        file = _exported(network, _example(torch, network, tuple(given)), {})
        columns = {one.name: value.numpy() for one, value in zip(model.inputs, given)}
        outputs, worst = difference(model.predict(columns), computed(file, given)), gradients(network, model, given)
        file = older(network, given)
        tied = [] if name != "gpt" else ["words.weight", "head.weight"]
        again = tb.import_onnx(file, loss=loss, tied=tied)
        second = difference(again.predict({one.name: value.numpy() for one, value in zip(again.inputs, given)}), computed(file, given))
        right = outputs <= OUTPUT and second <= OUTPUT and worst <= GRADIENT
        print(f"{name}, {len(model.tensors)}: {outputs:.0e}, {worst:.0e}; {second:.0e}{'' if right else '  WRONG'}", flush=True)
        failed += [] if right else [name]
    sys.exit(f"differs: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
