"""What a checkpoint every 1000 steps costs: as many steps with one and without, in turn. checkpoints.py [PAIRS, 5]. Needs PyTorch."""
import os
import statistics
import sys
import time

import torch
from torch import nn

from folder import SILO, Folder

sys.path.insert(0, str(SILO))
import tributary  # noqa: E402

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
STEPS = 1000


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(32, 784), torch.randint(0, 10, (32,))
    folder = Folder(model.state_dict())
    os.environ["TRIBUTARY_JOB"] = str(folder.path)
    job = tributary.job()

    def steps():
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    steps()
    alone, saving, ratios = [], [], []
    for _ in range(PAIRS):
        begun = time.perf_counter()
        steps()
        alone.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        steps()
        trained = time.perf_counter()
        job.checkpoint.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        saving.append(time.perf_counter() - trained)
        ratios.append((time.perf_counter() - begun) / alone[-1])
    print(
        f"checkpoint of model and Adam, 159 010 parameters, every {STEPS} steps: {1000 * statistics.median(saving):.1f} ms "
        f"beside {statistics.median(alone):.2f} s of steps ({100 * statistics.median(saving) / statistics.median(alone):.2f} %); "
        f"with and without, {PAIRS} pairs: {min(ratios):.3f}-{max(ratios):.3f}, median {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
