"""Any number of processes, another one after each start: what a site has at the moment.

    tributary participant run … --trainer 'torchrun --standalone --nproc-per-node {processes} examples/silo/elastic.py 0' \\
        --trainer-processes 'nvidia-smi -L | wc -l' --trainer-stall 300 --trainer-dir jobs
"""
import os

import net
import torch
import tributary
from torch import distributed as dist
from torch.nn.functional import cross_entropy

EVERY = int(os.environ.get("CHECKPOINT_STEPS", 1))

rank, processes = net.begin()
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
model.load_state_dict(job.model())
optimizer = net.sgd(job, model.parameters())
start, saved = 0, job.checkpoint.load()
if saved:
    start = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
x, y = net.rows()
loss = torch.zeros(())
for step, of, batch in net.steps(job, len(x), start):
    # Parts may have different sizes, or none: sums over parts, divided by all.
    mine = batch[rank::processes]
    optimizer.zero_grad()
    loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(batch)
    loss.backward()
    loss = loss.detach()
    if processes > 1:
        for tensor in [loss, *(parameter.grad for parameter in model.parameters())]:
            dist.all_reduce(tensor)
    optimizer.step()
    job.progress(step, of, loss)
    if step % EVERY == 0:
        job.checkpoint.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
job.done(model, examples=len(x), metrics={"train_loss": loss})
