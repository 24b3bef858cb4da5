"""A mixture of experts: each row goes to the best two of four, and each process has some of the experts. A loss keeps them equally busy."""
import net
import torch
import tributary
from torch import distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

EXPERTS, TOP, BALANCE = 4, 2, 0.01


class Sum(torch.autograd.Function):
    """Adds what each process has; each has the same gradient."""

    @staticmethod
    def forward(_, part):
        whole = part.clone()
        if dist.is_initialized():
            dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(_, gradient):
        return gradient


class Spread(torch.autograd.Function):
    """The same to each process; their gradients add up."""

    @staticmethod
    def forward(_, whole):
        return whole.view_as(whole)

    @staticmethod
    def backward(_, gradient):
        return Sum.forward(None, gradient)


class Moe(nn.Module):
    def __init__(self, rank=0, processes=1):
        super().__init__()
        self.into, self.router, self.out = nn.Linear(16, 32), nn.Linear(32, EXPERTS, bias=False), nn.Linear(32, 4)
        mine = range(EXPERTS * rank // processes, EXPERTS * (rank + 1) // processes)
        self.experts = nn.ModuleDict({str(i): nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for i in mine})

    def forward(self, x):
        hidden = torch.tanh(self.into(x))
        odds = self.router(hidden).softmax(1)
        gates, chosen = odds.topk(TOP, 1)
        gates = Spread.apply(gates / gates.sum(1, keepdim=True))
        spread, part = Spread.apply(hidden), torch.zeros_like(hidden)
        for number, expert in self.experts.items():
            row, place = (chosen == int(number)).nonzero(as_tuple=True)
            part = part.index_add(0, row, gates[row, place].unsqueeze(1) * expert(spread[row]))
        busy = nn.functional.one_hot(chosen, EXPERTS).float().sum(1).mean(0) / TOP
        return self.out(hidden + Sum.apply(part)), EXPERTS * (busy * odds.mean(0)).sum()


if __name__ == "__main__":
    rank, processes = net.begin()
    job = tributary.job()
    if job.kind == "evaluate":
        job.refuse("moe.py does not evaluate")
    model, received = Moe(rank, processes), job.model()
    model.load_state_dict({name: received[name] for name in model.state_dict()})
    optimizer = net.sgd(job, model.parameters())
    x, y = net.rows()
    for step, of, batch in net.steps(job, len(x)):
        optimizer.zero_grad()
        answer, balance = model(x[batch])
        loss = cross_entropy(answer, y[batch]) + BALANCE * balance
        loss.backward()
        optimizer.step()
        job.progress(step, of, loss, balance=balance)
    job.done(model, examples=len(x), metrics={"train_loss": loss})
