"""The Flower server of this app, which Tributary does not use: for a run beside Tributary's."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart_sklearn.task import get_model, get_model_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    first = ArrayRecord(get_model_params(get_model(config["local-epochs"])))
    result = FedAvg(fraction_train=1.0, fraction_evaluate=1.0).start(grid=grid, initial_arrays=first, num_rounds=config["num-server-rounds"])
    if config["save-to"]:
        np.savez(config["save-to"], *result.arrays.to_numpy_ndarrays())
