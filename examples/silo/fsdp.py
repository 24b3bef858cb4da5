"""Weights, gradients and optimizer are sharded over all processes (FSDP2): a model that no GPU can hold. The checkpoint holds whole
tensors, so that another number of processes can go on; beyond what rank 0 can hold, give `torch.distributed.checkpoint` the folder.
"""
import net
import tributary
from torch import distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, processes = net.begin()
if not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
for layer in model:
    if next(layer.parameters(), None) is not None:
        fully_shard(layer)
fully_shard(model)
job.load(model)
optimizer = net.sgd(job, model.parameters())
start, saved = 0, job.checkpoint.load()
if saved:
    start = saved["step"]
    whole = StateDictOptions(full_state_dict=True)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"], options=whole)
x, y = net.rows()
loss = 0.0
for step, of, batch in net.steps(job, len(x), start):
    mine = batch[rank::processes]
    optimizer.zero_grad()
    loss = cross_entropy(model(x[mine]), y[mine])
    loss.backward()
    optimizer.step()
    job.progress(step, of, loss)
    if step % 10 == 0:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights, state = get_state_dict(model, optimizer, options=options)
        job.checkpoint.save({"step": step, "model": weights, "optimizer": state})
job.done(model, examples=len(x), metrics={"train_loss": loss})
