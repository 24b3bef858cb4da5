"""Like ddp.py, and each process keeps the optimizer's state of a part of the parameters alone (ZeRO-1)."""
import net
import tributary
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

rank, processes = net.begin()
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
model.load_state_dict(job.model())
if processes > 1:
    net.follow(job)
    model = DistributedDataParallel(model)
    plan = job.plan
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), SGD, lr=plan.learning_rate, momentum=plan.momentum, weight_decay=plan.weight_decay
    )
else:
    optimizer = net.sgd(job, model.parameters())
x, y = net.rows()
for step, of, batch in net.steps(job, len(x)):
    mine = batch[rank::processes]
    optimizer.zero_grad()
    loss = cross_entropy(model(x[mine]), y[mine])
    loss.backward()
    optimizer.step()
    job.progress(step, of, loss)
job.done(model, examples=len(x), metrics={"train_loss": loss})
