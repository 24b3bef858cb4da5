"""A client of NVFlare in the shape of its hello-pt: digits by PyTorch."""

import argparse

import nvflare.client as flare
import torch
from nvflare.client.tracking import SummaryWriter
from sklearn.datasets import load_digits


class Net(torch.nn.Module):
    """Two layers, with a batch normalization between them."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(64, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.out = torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        return (net(x).argmax(dim=1) == y).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", type=int, required=True)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32)[: args.sites * 150], torch.tensor(data.target)[: args.sites * 150]
    x, y = x[args.site :: args.sites], y[args.site :: args.sites]
    net = Net()

    flare.init()
    writer = SummaryWriter()
    while flare.is_running():
        received = flare.receive()
        print(f"round {received.current_round} at {flare.get_site_name()}")
        net.load_state_dict(received.params)
        accuracy = evaluate(net, x[120:], y[120:])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
        net.train()
        steps = 0
        for epoch in range(args.epochs):
            for start in range(0, 120, 24):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(x[start : start + 24]), y[start : start + 24])
                loss.backward()
                optimizer.step()
                steps += 1
            writer.add_scalar("train_loss", loss.item(), global_step=received.current_round * args.epochs + epoch)
        flare.send(
            flare.FLModel(params=net.cpu().state_dict(), metrics={"accuracy": accuracy}, meta={"NUM_STEPS_CURRENT_ROUND": steps}),
        )


if __name__ == "__main__":
    main()
