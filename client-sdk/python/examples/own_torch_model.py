"""A network of your own, defined in PyTorch, learnt by ten sites whose devices need no PyTorch: `task.train` computes its graph.

Start `tributary serve --dev` and set TRIBUTARY_SERVER, TRIBUTARY_CA and TRIBUTARY_TOKEN as it prints them. Needs torch, onnx,
onnxscript and scikit-learn (for the digits).
"""

import os
import tempfile
import threading

import torch
import tributary as tb
from sklearn.datasets import load_digits
from torch import nn

SITES, ROUNDS = 10, 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm, self.last = nn.GroupNorm(4, 16), nn.Linear(16 * 4 * 4, 10)

    def forward(self, image):
        image = torch.relu(self.first(image))
        image = nn.functional.max_pool2d(torch.relu(self.norm(self.second(image))), 2)
        return self.last(image.flatten(1))


def operate(net, example):
    """The operator's machine makes a task of the network."""
    model = tb.task_from(net, example, loss="cross_entropy")
    print(f"{model}; operations: {', '.join(model.operations)}")
    operator = tb.Operator(os.environ["TRIBUTARY_SERVER"], ca=os.environ["TRIBUTARY_CA"])
    spec = {
        "name": "own-net",
        "rounds": {"count": ROUNDS, "select_max": SITES},
        "selection": {"cohort": {"count": SITES}},
        "training": {"epochs": 2, "batch_size": 16, "learning_rate": 0.05},
        "aggregation": {"clip_range": 16.0},
        "metrics": ["train_loss"],
    }
    operator.create(spec, model=model)
    return operator


def site(journal, token, images, classes):
    """A device: no PyTorch, and no code of the network."""
    with tb.participant(task="own-net", journal=journal, token=token, quiet=True) as me:
        for task in me.tasks():
            task.train({"image": images}, classes)


def main():
    torch.manual_seed(1)
    data = load_digits()
    images, classes = (data.images / 16).astype("float32")[:, None], data.target
    train, test = slice(0, 1500), slice(1500, None)
    net = Net()
    operator = operate(net, torch.from_numpy(images[:2]))
    with tempfile.TemporaryDirectory() as folder:
        threads = [
            threading.Thread(
                target=site,
                args=(f"{folder}/site-{number}", operator.enroll(), images[train][number::SITES], classes[train][number::SITES]),
            )
            for number in range(SITES)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for round in operator.rounds("own-net"):
        print(f"round {round['number']}: training loss {round['metrics']['train_loss']['value']:.4f}")
    net.load_state_dict({name: torch.from_numpy(array) for name, array in operator.model("own-net").items()})
    with torch.no_grad():
        right = net(torch.from_numpy(images[test])).argmax(1).numpy() == classes[test]
    print(f"accuracy on digits that no site has: {right.mean():.4f}")


if __name__ == "__main__":
    main()
