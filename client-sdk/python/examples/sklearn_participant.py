"""Digits, learnt by several sites together with scikit-learn: plain_sklearn.py and four lines."""

import sys

import numpy as np
import tributary as tb
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

data = load_digits()
site, sites = int(sys.argv[1]), int(sys.argv[2])
x, y = data.data[site::sites] / 16, data.target[site::sites]
model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, random_state=site)
model.partial_fit(x, y, classes=np.arange(10))  # makes the arrays


def train():
    for _ in range(5):
        model.partial_fit(x, y)


for task in tb.participant(task="digits", journal=f"site-{site}").tasks():
    model.coef_, model.intercept_ = (task.parameters[name].astype("f8") for name in ("coef", "intercept"))
    train()
    task.send([model.coef_, model.intercept_], examples=len(x), metrics={"train_accuracy": model.score(x, y)})
