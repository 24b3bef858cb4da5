"""Digits, learnt by one site alone with PyTorch."""

import sys

import torch
from sklearn.datasets import load_digits

data = load_digits()
site, sites = int(sys.argv[1]), int(sys.argv[2])
x = torch.tensor(data.data[site::sites] / 16, dtype=torch.float32)
y = torch.tensor(data.target[site::sites])
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for _ in range(5):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()


train()
