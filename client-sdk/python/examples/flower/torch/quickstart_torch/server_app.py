"""The Flower server of this app, which Tributary does not use: for a run beside Tributary's."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart_torch.task import Net

app = ServerApp()


def first_model():
    """The model of both runs' first round."""
    torch.manual_seed(1)
    return Net()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(first_model().state_dict()),
        train_config=ConfigRecord({"lr": config["lr"]}),
        num_rounds=config["num-server-rounds"],
    )
    if config["save-to"]:
        torch.save(result.arrays.to_torch_state_dict(), config["save-to"])
