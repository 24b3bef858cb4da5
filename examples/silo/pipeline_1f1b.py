"""Each process has some of the layers; 8 micro-batches are in flight, one forward, one backward (1F1B)."""
from collections import OrderedDict

import net
import torch
import tributary
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy

MICRO_BATCHES = 8

rank, processes = net.begin()
if not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
layers = list(net.model().named_children())
first, end = (len(layers) * part // processes for part in (rank, rank + 1))
# Named as in the whole model: the parts are put together by name.
part = nn.Sequential(OrderedDict(layers[first:end]))
received = job.model()
part.load_state_dict({name: received[name] for name in part.state_dict()})
optimizer = net.sgd(job, part.parameters())
device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
stage = PipelineStage(part, rank, processes, device)
schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=cross_entropy)
x, y = net.rows()
is_last = rank == processes - 1
for step, of, batch in net.steps(job, len(x)):
    optimizer.zero_grad()
    losses = []
    inputs = (x[batch],) if rank == 0 else ()
    schedule.step(*inputs, target=y[batch] if is_last else None, losses=losses if is_last else None)
    optimizer.step()
    job.progress(step, of)
loss = torch.stack([loss.detach() for loss in losses]).mean() if is_last else torch.zeros(())
dist.broadcast(loss, src=processes - 1)
job.done(part, examples=len(x), metrics={"train_loss": loss})
