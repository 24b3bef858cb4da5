"""Writes small networks as ONNX, with outputs and gradients by PyTorch: the golden cases of mod.rs.

usage: make.py (needs torch, onnx, onnxscript)"""

import json

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.norm, self.group = nn.BatchNorm2d(4), nn.GroupNorm(2, 4)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = nn.functional.max_pool2d(x + nn.functional.silu(self.group(self.second(x))), 2)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))


class Transformer(nn.Module):
    """Causal attention over tokens, with a head tied to the embedding."""

    def __init__(self, tokens=7, width=8, heads=2, longest=12):
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, width), nn.Embedding(longest, width)
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.last, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 12), nn.Linear(12, width)
        self.heads = heads

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.embed(tokens) + self.place(torch.arange(length))
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        split = lambda t: t.reshape(batch, length, self.heads, -1).transpose(1, 2)
        scores = split(q) @ split(k).transpose(-1, -2) / 2.0
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        mixed = scores.masked_fill(mask, float("-inf")).softmax(-1) @ split(v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        x = x + self.down(nn.functional.gelu(self.up(self.last(x))))
        return x @ self.embed.weight.T


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(6, 4), nn.LSTM(4, 5, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, 6)

    def forward(self, tokens):
        return self.fc(self.lstm(self.embed(tokens))[0])


class Table(nn.Module):
    """A regression over numbers and a category."""

    def __init__(self):
        super().__init__()
        self.kind, self.first, self.norm, self.last = nn.Embedding(5, 3), nn.Linear(7, 9), nn.LayerNorm(9), nn.Linear(9, 1)

    def forward(self, numbers, kind):
        x = torch.cat([numbers, self.kind(kind)], 1)
        return self.last(nn.functional.dropout(torch.tanh(self.norm(self.first(x))), 0.1, self.training))


def case(name, net, inputs, dynamic):
    torch.manual_seed(1)
    for value in list(net.parameters()) + [b for b in net.buffers() if b.is_floating_point()]:
        value.data = torch.rand_like(value) + 0.2 if name == "residual" and value.dim() == 1 else torch.randn_like(value) * 0.4
    net.eval()
    torch.onnx.export(net, tuple(inputs.values()), f"{name}.onnx", dynamo=True, optimize=False, external_data=False,
                      input_names=list(inputs), output_names=["y"], dynamic_shapes=dynamic, verbose=False)
    import onnx

    model = onnx.load(f"{name}.onnx")
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
    del model.graph.value_info[:]
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for value in list(model.graph.input) + list(model.graph.output) + list(model.graph.initializer):
        del value.metadata_props[:]
    onnx.save(model, f"{name}.onnx")
    output = net(*inputs.values())
    weights = torch.rand_like(output) * 2 - 1
    net.zero_grad()
    (output * weights).sum().backward()
    flat = lambda tensor: [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]
    told = {
        "inputs": {key: value.flatten().tolist() for key, value in inputs.items()},
        "batch": output.shape[0],
        "length": inputs["tokens"].shape[1] if "tokens" in inputs else 1,
        "output": flat(output),
        "weights": flat(weights),
        "gradients": {key: flat(value.grad) for key, value in net.named_parameters()},
    }
    with open(f"{name}.json", "w") as file:
        json.dump(told, file)


def trained(name, net, x, labels, steps, **sgd):
    """Steps of SGD on all examples, in train(): parameters and running statistics after each."""
    optimizer, told = torch.optim.SGD(net.parameters(), **sgd), []
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        state = {key: value for key, value in net.state_dict().items() if value.is_floating_point()}
        told.append({"loss": loss.item(), "state": {key: [float(f"{v:.9g}") for v in value.flatten().tolist()] for key, value in state.items()}})
    with open(f"{name}.json", "w") as file:
        json.dump({"x": x.flatten().tolist(), "labels": labels.tolist(), "steps": told}, file)


batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
residual = Residual()
case("residual", residual, {"x": torch.randn(3, 1, 6, 6)}, {"x": {0: batch}})
trained("batch_statistics", residual, torch.randn(8, 1, 6, 6) + 0.5, torch.randint(3, (8,)), 3, lr=0.1, momentum=0.9)
case("transformer", Transformer(), {"tokens": torch.randint(7, (2, 9))}, {"tokens": {0: batch, 1: length}})
case("recurrent", Recurrent(), {"tokens": torch.randint(6, (3, 4))}, {"tokens": {0: batch, 1: length}})
case("table", Table(), {"numbers": torch.randn(4, 4), "kind": torch.randint(5, (4,))}, {"numbers": {0: batch}, "kind": {0: batch}})
