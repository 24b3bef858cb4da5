"""The Flower server of this app, which Tributary does not use: for a run beside Tributary's."""

import numpy as np
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def mean(metrics):
    """Metrics of all sites, each weighted by its examples."""
    total = sum(examples for examples, _ in metrics)
    return {name: sum(examples * said[name] for examples, said in metrics) / total for name in metrics[0][1]}


def server_fn(context: Context):
    first = ndarrays_to_parameters([np.zeros((10, 64)), np.zeros(10)])
    strategy = FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=1.0,
        initial_parameters=first,
        on_fit_config_fn=lambda server_round: {"lr": 0.5, "server_round": server_round},
        fit_metrics_aggregation_fn=mean,
        evaluate_metrics_aggregation_fn=mean,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=context.run_config["num-server-rounds"]))


app = ServerApp(server_fn=server_fn)
