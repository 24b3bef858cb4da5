"""A Flower client in the shape of Flower's advanced examples: `NumPyClient`, a head that stays in `Context.state`, a rate from the server."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits


def softmax(z):
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def load_data(partition_id, num_partitions):
    """A site's digits for training and for evaluation; each site has five of the ten digits."""
    data = load_digits()
    x, y = data.data / 16, data.target
    keep = np.isin(y, [(partition_id + digit) % 10 for digit in range(5)])
    x, y = x[keep][partition_id::num_partitions], y[keep][partition_id::num_partitions]
    cut = len(x) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


class Client(NumPyClient):
    """A linear model W x + b; b is the classification head of this site."""

    def __init__(self, state, train, test, local_epochs):
        self.state, self.train, self.test, self.local_epochs = state, train, test, local_epochs

    def get_head(self, received):
        return self.state["head"]["b"].numpy() if "head" in self.state else received

    def fit(self, parameters, config):
        weights, bias = parameters[0].astype("f8"), self.get_head(parameters[1]).astype("f8")
        x, y = self.train
        right = np.eye(10)[y]
        for _ in range(self.local_epochs):
            for start in range(0, len(x), 16):
                error = softmax(x[start : start + 16] @ weights.T + bias) - right[start : start + 16]
                weights -= config["lr"] * error.T @ x[start : start + 16] / len(error)
                bias -= config["lr"] * error.mean(axis=0)
        self.state["head"] = ArrayRecord({"b": Array(bias)})
        rounds = [*self.state["rounds"]["seen"], config["server_round"]] if "rounds" in self.state else [config["server_round"]]
        self.state["rounds"] = ConfigRecord({"seen": rounds})
        return [weights, parameters[1]], len(x), {"rounds_seen": len(rounds)}

    def evaluate(self, parameters, config):
        x, y = self.test
        found = softmax(x @ parameters[0].T + self.get_head(parameters[1]))
        loss = float(-np.log(found[np.arange(len(y)), y]).mean())
        return loss, len(x), {"accuracy": float((found.argmax(axis=1) == y).mean())}


def client_fn(context: Context):
    train, test = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return Client(context.state, train, test, context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn)
