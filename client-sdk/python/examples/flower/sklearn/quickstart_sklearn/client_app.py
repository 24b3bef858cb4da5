"""A Flower client in the shape of Flower's quickstart-sklearn."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from quickstart_sklearn.task import get_model, get_model_params, load_data, set_model_params

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = get_model(context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    x, _, y, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps do not converge
        model.fit(x, y)
    loss = log_loss(y, model.predict_proba(x))
    metrics = MetricRecord({"num-examples": len(x), "train_logloss": loss})
    return Message(content=RecordDict({"arrays": ArrayRecord(get_model_params(model)), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model = get_model(context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    _, x, _, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    metrics = MetricRecord({"num-examples": len(x), "test_logloss": log_loss(y, model.predict_proba(x), labels=range(10)), "accuracy": model.score(x, y)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
