"""One process: what a script is before anybody makes it parallel. The other examples leave the same model.

    tributary participant run … --trainer 'python3 examples/silo/plain.py 0' --trainer-dir jobs
"""
import net
import tributary
from torch.nn.functional import cross_entropy

net.begin()
job = tributary.job()
if job.kind == "evaluate":
    net.evaluate(job)
model = net.model()
model.load_state_dict(job.model())
x, y = net.rows()
optimizer = net.sgd(job, model.parameters())
for step, of, batch in net.steps(job, len(x)):
    optimizer.zero_grad()
    loss = cross_entropy(model(x[batch]), y[batch])
    loss.backward()
    optimizer.step()
    job.progress(step, of, loss)
job.done(model, examples=len(x), metrics={"train_loss": loss})
