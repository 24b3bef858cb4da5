"""The model, a site's digits, and how to train and test."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    """Two layers, with a batch normalization between them."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(64, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.out = torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


def load_data(partition_id, num_partitions, batch_size):
    """A site's digits, four fifths of them for training; without a site, the last 297 digits, which no site has."""
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    if partition_id is None:
        return DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=batch_size)
    x, y = x[:1500][partition_id::num_partitions], y[:1500][partition_id::num_partitions]
    cut = len(x) * 4 // 5
    order = torch.Generator().manual_seed(partition_id)
    train = DataLoader(TensorDataset(x[:cut], y[:cut]), batch_size=batch_size, shuffle=True, generator=order, drop_last=True)
    return train, DataLoader(TensorDataset(x[cut:], y[cut:]), batch_size=batch_size)


def train(net, loader, epochs, lr):
    """Trains in place; returns the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net, loader):
    """The mean loss and the accuracy."""
    net.eval()
    right, loss = 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            loss += torch.nn.functional.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(dim=1) == y).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)
