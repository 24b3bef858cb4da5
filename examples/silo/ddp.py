"""Each process has the model and a part of each batch; gradients are averaged (DDP). Goes on from its checkpoint.

    tributary participant run … --trainer 'torchrun --standalone --nproc-per-node {processes} examples/silo/ddp.py 0' --trainer-dir jobs
"""
import time

import net
import torch
import tributary
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

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
wrapped = DistributedDataParallel(model) if processes > 1 else model
x, y = net.rows()
loss = torch.zeros(())
for step, of, batch in net.steps(job, len(x), start):
    begun, mine = time.perf_counter(), batch[rank::processes]
    optimizer.zero_grad()
    loss = cross_entropy(wrapped(x[mine]), y[mine])
    loss.backward()
    optimizer.step()
    seconds = time.perf_counter() - begun
    job.progress(step, of, loss, samples_per_s=len(batch) / seconds, step_s=seconds)
    job.checkpoint.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
job.done(wrapped, examples=len(x), metrics={"train_loss": loss})
