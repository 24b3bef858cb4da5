"""A batch that does not fit at once: gradients of several parts make one step, and processes talk to each other once a step."""
import contextlib

import net
import tributary
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

PARTS = 4

rank, processes = net.begin()
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
model.load_state_dict(job.model())
optimizer = net.sgd(job, model.parameters())
wrapped = DistributedDataParallel(model) if processes > 1 else model
x, y = net.rows()
for step, of, batch in net.steps(job, len(x)):
    mine = batch[rank::processes]
    optimizer.zero_grad()
    total = 0.0
    for number, part in enumerate(mine.chunk(PARTS), 1):
        waits = processes > 1 and number < PARTS
        with wrapped.no_sync() if waits else contextlib.nullcontext():
            # Means of parts of different sizes count by their sizes.
            loss = cross_entropy(wrapped(x[part]), y[part]) * len(part) / len(mine)
            loss.backward()
        total += loss.item()
    optimizer.step()
    job.progress(step, of, total)
job.done(model, examples=len(x), metrics={"train_loss": total})
