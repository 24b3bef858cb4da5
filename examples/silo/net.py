"""What the examples train: a small classifier of this site's rows, of which each has 16 numbers and one of 4 classes."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def model():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def begin():
    """Joins the group that `torchrun` has started, if it has. Returns this process's number, and how many there are.

    These examples train on processors. On GPUs a script joins by "nccl", takes torch.cuda.set_device(int(os.environ["LOCAL_RANK"])),
    and moves model and rows there.
    """
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        return 0, 1
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def rows():
    """The rows of the site that the command line names by a number: 256, 384, 512…"""
    site = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    x = torch.randn(256 + 128 * site, 16, generator=torch.Generator().manual_seed(site))
    return x, (x @ torch.randn(16, 4, generator=torch.Generator().manual_seed(9))).argmax(1)


def evaluate(job):
    """Measures the received model, and ends: each process the same, of which rank 0 is heard."""
    whole, (x, y) = model(), rows()
    whole.load_state_dict(job.model())
    with torch.no_grad():
        job.done(examples=len(x), metrics={"loss": nn.functional.cross_entropy(whole(x), y)})
    raise SystemExit


def steps(job, count, start=0):
    """Of each step its number, how many there are, and its rows: the same in each process, and after each start.

    Batches that the plan accumulates into one step are one batch here: the mean of their gradients is the gradient of their mean.
    """
    size = job.plan.batch_size * job.plan.accumulate
    of = job.plan.steps or max(job.plan.epochs * count // size, 1)
    if job.budget.steps is not None:
        of = min(of, job.budget.steps)
    for step in range(start, of):
        draw = torch.Generator().manual_seed((job.seed + step) % 2**63)
        yield step + 1, of, torch.randperm(count, generator=draw)[:size]


def sgd(job, parameters):
    """The optimizer."""
    follow(job)
    return torch.optim.SGD(parameters, lr=job.plan.learning_rate, momentum=job.plan.momentum, weight_decay=job.plan.weight_decay)


def follow(job):
    """Refuses a plan that asks for more than `sgd` and `steps` do, for example AdamW, a clipped gradient, FedProx, a schedule or bf16."""
    job.follow("epochs", "steps", "batch_size", "accumulate", "learning_rate", "momentum", "weight_decay")
