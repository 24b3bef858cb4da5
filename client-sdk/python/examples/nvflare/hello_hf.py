"""A client of NVFlare in the shape of its Hugging Face examples: digits by a Trainer of Transformers."""

import argparse
import tempfile

import nvflare.client.hf as flare
import torch
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments


class Net(torch.nn.Module):
    """Two layers, with the loss as Transformers' models have it."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, pixels, labels):
        logits = self.layers(pixels)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", type=int, required=True)
    parser.add_argument("--sites", type=int, required=True)
    args = parser.parse_args()
    data = load_digits()
    images, labels = data.data[args.site :: args.sites] / 16, data.target[args.site :: args.sites]
    rows = [{"pixels": torch.tensor(image, dtype=torch.float32), "labels": int(label)} for image, label in zip(images, labels)]

    with tempfile.TemporaryDirectory() as folder:
        settings = {"learning_rate": 0.01, "num_train_epochs": 2, "per_device_train_batch_size": 32, "use_cpu": True, "save_strategy": "no"}
        trainer = Trainer(
            Net(),
            TrainingArguments(folder, report_to=[], disable_tqdm=True, **settings),
            train_dataset=rows[:-100],
            eval_dataset=rows[-100:],
            compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(axis=1) == found.label_ids).mean())},
        )
        flare.patch(trainer, restore_state=False)
        while flare.is_running():
            trainer.evaluate()
            trainer.train()


if __name__ == "__main__":
    main()
