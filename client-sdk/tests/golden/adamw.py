"""Writes adamw.json: steps of PyTorch's AdamW on given gradients, in 32 bits. Needs PyTorch: python adamw.py > adamw.json."""

import json
import random

import torch

RUNS = [
    {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
    {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
    {"learning_rate": 0.05, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.5},
    {"learning_rate": 0.02, "beta1": 0.0, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1},
]


def run(numbers, seed):
    draw = random.Random(seed)
    vector = lambda scale: torch.tensor([draw.gauss(0, scale) for _ in range(6)], dtype=torch.float32)
    parameter = torch.nn.Parameter(vector(1.0))
    optimizer = torch.optim.AdamW(
        [parameter],
        lr=numbers["learning_rate"],
        betas=(numbers["beta1"], numbers["beta2"]),
        eps=numbers["epsilon"],
        weight_decay=numbers["weight_decay"],
    )
    gradients, parameters = [], [parameter.tolist()]
    for step in range(12):
        gradient = vector(10.0 ** (step % 4 - 2))
        gradient[0] = 0.0
        parameter.grad = gradient
        optimizer.step()
        gradients.append(gradient.tolist())
        parameters.append(parameter.tolist())
    return {**numbers, "gradients": gradients, "parameters": parameters}


print(json.dumps([run(numbers, seed) for seed, numbers in enumerate(RUNS)], indent=1))
