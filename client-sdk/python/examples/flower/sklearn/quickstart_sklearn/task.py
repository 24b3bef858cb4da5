"""The model, its parameters, and a site's digits."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


def get_model(local_epochs):
    """A model that begins each training where the last one ended."""
    model = LogisticRegression(max_iter=local_epochs, warm_start=True)
    model.classes_ = np.arange(10)
    set_model_params(model, [np.zeros((10, 64)), np.zeros(10)])
    return model


def get_model_params(model):
    return [model.coef_, model.intercept_]


def set_model_params(model, params):
    model.coef_, model.intercept_ = params


def load_data(partition_id, num_partitions):
    """A site's digits for training and for evaluation; without a site, those that no site has."""
    data = load_digits()
    x, y = data.data / 16, data.target
    if partition_id is None:
        return x[1500:], y[1500:]
    x, y = x[:1500][partition_id::num_partitions], y[:1500][partition_id::num_partitions]
    cut = len(x) * 4 // 5
    return x[:cut], x[cut:], y[:cut], y[cut:]
