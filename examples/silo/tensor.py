"""Layers are cut in two and each process computes its part of each (tensor parallelism, by columns and then by rows)."""
import net
import torch
import tributary
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

rank, processes = net.begin()
if not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (processes,))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
job.load(model)
optimizer = net.sgd(job, model.parameters())
x, y = net.rows()
for step, of, batch in net.steps(job, len(x)):
    optimizer.zero_grad()
    # The whole batch in each process.
    loss = cross_entropy(model(x[batch]), y[batch])
    loss.backward()
    optimizer.step()
    job.progress(step, of, loss)
job.done(model, examples=len(x), metrics={"train_loss": loss})
