"""Finds how many rows a device takes at once: doubles until its memory is full, halves what failed. The step stays the plan's.

On a GPU memory is full when CUDA says so; for tensors on a processor MOST_BYTES (2 MB) of activations stand for it.
"""
import os

import net
import torch
import tributary
from torch import distributed as dist
from torch.nn.functional import cross_entropy

MOST_BYTES = int(os.environ.get("MOST_BYTES", 2_000_000))

rank, processes = net.begin()
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
model.load_state_dict(job.model())
x, y = net.rows()


def fits(count):
    """Whether all processes can take so many rows."""
    kept = 0

    def keep(tensor):
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu" and kept > MOST_BYTES:
            raise torch.OutOfMemoryError(f"{kept} bytes of activations")
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            cross_entropy(model(torch.zeros(count, *x.shape[1:])), torch.zeros(count, dtype=torch.long)).backward()
        can = torch.ones(1)
    except torch.OutOfMemoryError:
        can = torch.zeros(1)
    model.zero_grad()
    if processes > 1:
        dist.all_reduce(can, op=dist.ReduceOp.MIN)
    return bool(can)


size = 1
while fits(2 * size):
    size *= 2
job.progress(0, batch_at_once=size)
share = -(-job.plan.batch_size // processes)
optimizer = net.sgd(job, model.parameters())
for step, of, batch in net.steps(job, len(x)):
    mine = batch[rank::processes]
    optimizer.zero_grad()
    total = 0.0
    for part in mine.split(min(size, share)):
        loss = cross_entropy(model(x[part]), y[part], reduction="sum") / len(batch)
        loss.backward()
        total += loss.item()
    if processes > 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    job.progress(step, of, total)
job.done(model, examples=len(x), metrics={"train_loss": total, "batch_at_once": (size, 1)})
