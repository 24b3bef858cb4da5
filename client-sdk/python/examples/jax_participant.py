"""Digits, learnt by several sites together with JAX: plain_jax.py and four lines."""

import sys

import jax
import jax.numpy as jnp
import tributary as tb
from sklearn.datasets import load_digits

data = load_digits()
site, sites = int(sys.argv[1]), int(sys.argv[2])
x, y = jnp.asarray(data.data[site::sites] / 16), jnp.asarray(data.target[site::sites])


def layer(key, inputs, outputs):
    return {"kernel": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "bias": jnp.zeros(outputs)}


hidden, out = jax.random.split(jax.random.key(site))
params = {"hidden": layer(hidden, 64, 32), "out": layer(out, 32, 10)}


def loss(params):
    hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    scores = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], axis=1).mean()


@jax.jit
def train(params):
    def step(_, params):
        return jax.tree.map(lambda value, slope: value - 0.5 * slope, params, jax.grad(loss)(params))

    return jax.lax.fori_loop(0, 50, step, params)


for task in tb.participant(task="digits", journal=f"site-{site}").tasks():
    params = task.parameters_like(params)
    params = train(params)
    task.send(params, examples=len(x))
