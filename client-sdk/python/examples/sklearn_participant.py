"""Digits, learnt by several sites together with scikit-learn. The address and the token are in the environment."""

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

for task in tb.participant(task="digits", journal=f"site-{site}").tasks():
    model.coef_, model.intercept_ = (task.parameters[name].astype("f8") for name in ("coef", "intercept"))
    accuracy = model.score(x, y)
    for _ in range(task.plan.epochs):
        model.partial_fit(x, y)
    task.send({"coef": model.coef_, "intercept": model.intercept_}, examples=len(x), metrics={"accuracy": accuracy})
