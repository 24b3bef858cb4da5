"""A client of NVFlare in the shape of its hello-lightning: digits by PyTorch Lightning."""

import argparse

import nvflare.client.lightning as flare
import torch
from pytorch_lightning import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    """Two layers, trained by SGD."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_acc", (self.layers(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", type=int, required=True)
    parser.add_argument("--sites", type=int, required=True)
    args = parser.parse_args()
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32)[args.site :: args.sites], torch.tensor(data.target)[args.site :: args.sites]
    train = DataLoader(TensorDataset(x[:-30], y[:-30]), batch_size=24)
    held_out = DataLoader(TensorDataset(x[-30:], y[-30:]), batch_size=30)

    model = Net()
    trainer = Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    flare.patch(trainer)
    while flare.is_running():
        trainer.validate(model, dataloaders=held_out, verbose=False)
        trainer.fit(model, train_dataloaders=train)


if __name__ == "__main__":
    main()
