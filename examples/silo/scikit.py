"""scikit-learn: passes of its linear classifier over this site's rows, of which the last column is the class, 0 to 2.

    tributary participant run … --trainer 'python3 examples/silo/scikit.py rows.csv' --trainer-dir jobs

The task's model: { name = "coef", shape = [3, COLUMNS] }, { name = "intercept", shape = [3] }, both zeros at first. Its [training] has
batch_size = 1.
"""
import sys

import numpy as np
import tributary
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

job = tributary.job()
# The classifier takes a step after each row.
job.follow("epochs", "learning_rate", "weight_decay", batch_size=1)
rows = np.loadtxt(sys.argv[1], delimiter=",", ndmin=2)
x, y = rows[:, :-1], rows[:, -1].astype(int)
model, classes = job.model(), np.arange(3)
learner = SGDClassifier(
    loss="log_loss", learning_rate="constant", eta0=job.plan.learning_rate, alpha=job.plan.weight_decay or 1e-9, random_state=job.seed % 2**32
)
# Sets up what the received model is put into.
learner.partial_fit(x, y, classes=classes)
learner.coef_, learner.intercept_ = model["coef"].astype(float), model["intercept"].astype(float)
if job.kind == "train":
    for step in range(job.plan.epochs):
        learner.partial_fit(x, y)
        job.progress(step + 1, of=job.plan.epochs)
measured = {"accuracy": learner.score(x, y), "loss": log_loss(y, learner.predict_proba(x), labels=classes)}
if job.kind == "evaluate":
    job.done(examples=len(x), metrics=measured)
else:
    job.done({"coef": learner.coef_, "intercept": learner.intercept_}, examples=len(x), metrics=measured)
