"""Writes optimizers.json: server optimizers, q-FFL and FedNova in numpy float64, transcribed from the papers and sharing
nothing with the Rust code. Run with numpy 2: python3 optimizers.py > optimizers.json"""

import json

import numpy as np

rng = np.random.default_rng(6)
SIZE, ROUNDS = 7, 12


def exact(values):
    """Numbers that f32 holds, so that both sides start from the same."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


start = exact(rng.uniform(1, 3, SIZE) * rng.choice([-1, 1], SIZE))
# Of several sizes; the mean shrinks over the rounds, so FedYogi's sign is seen both ways.
deltas = [exact(rng.normal(0.02, 0.05, SIZE) * 10.0 ** rng.integers(-3, 1, SIZE) * (1.2 - t / ROUNDS)) for t in range(ROUNDS)]


def fed_avg(learning_rate):
    x = start
    for d in deltas:
        x = x + learning_rate * d
    return {"x": x}


def fed_avg_m(learning_rate, momentum):  # Hsu et al. 2019, section 4, with their gradient's sign turned
    x, v = start, np.zeros(SIZE)
    for d in deltas:
        gradient = -d
        v = momentum * v + gradient
        x = x - learning_rate * v
    return {"x": x, "velocity": -v}


def reddi(second, learning_rate, beta1, tau, beta2=0.0):  # Reddi et al. 2021, algorithm 2
    x, m, v = start, np.zeros(SIZE), np.full(SIZE, tau**2)
    for d in deltas:
        m = beta1 * m + (1 - beta1) * d
        if second == "fed_adagrad":
            v = v + d**2
        elif second == "fed_yogi":
            v = v - (1 - beta2) * d**2 * np.sign(v - d**2)
        elif second == "fed_adam":
            v = beta2 * v + (1 - beta2) * d**2
        x = x + learning_rate * m / (np.sqrt(v) + tau)
    return {"x": x, "first": m, "second": v}


specs = [
    {"name": "fed_avg", "learning_rate": 0.7},
    {"name": "fed_avg_m", "learning_rate": 0.5, "momentum": 0.9},
    {"name": "fed_adagrad", "learning_rate": 0.1, "beta1": 0.0, "tau": 1e-3},
    {"name": "fed_adagrad", "learning_rate": 0.03, "beta1": 0.5, "tau": 1e-2},
    {"name": "fed_adam", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    {"name": "fed_adam", "learning_rate": 0.05, "beta1": 0.3, "beta2": 0.5, "tau": 1e-4},
    {"name": "fed_yogi", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    {"name": "fed_yogi", "learning_rate": 0.05, "beta1": 0.3, "beta2": 0.5, "tau": 1e-2},
]
rules = {"fed_avg": fed_avg, "fed_avg_m": fed_avg_m}
optimizers = []
for spec in specs:
    numbers = {k: v for k, v in spec.items() if k != "name"}
    result = rules[spec["name"]](**numbers) if spec["name"] in rules else reddi(spec["name"], **numbers)
    optimizers.append({"spec": spec} | {k: v.tolist() for k, v in result.items()})

local = [exact(rng.normal(0, 0.1, SIZE)) for _ in range(5)]
losses, examples, steps = [0.3, 1.1, 2.2, 0.05, 0.7], [10, 40, 25, 60, 5], [7, 20, 1, 13, 20]

q_ffl = []
for q, lipschitz in [(0.0, 10.0), (0.5, 10.0), (1.0, 4.0), (2.0, 20.0)]:  # Li et al. 2020, algorithm 2
    w = start
    grads = [lipschitz * (w - (w + d)) for d in local]
    numerators = [F**q * g for F, g in zip(losses, grads)]
    h = [q * F ** (q - 1) * np.sum(g**2) + lipschitz * F**q for F, g in zip(losses, grads)]
    q_ffl.append({"q": q, "lipschitz": lipschitz, "x": (w - sum(numerators) / sum(h)).tolist()})

fed_nova = []
for momentum, proximal in [(0.0, 0.0), (0.9, 0.0), (0.0, 0.05)]:  # Wang et al. 2020, section 4.2: a_i as vectors
    a = []
    for tau in steps:
        if proximal:
            a.append(np.array([(1 - proximal) ** (tau - 1 - j) for j in range(tau)]))
        else:
            a.append(np.array([(1 - momentum ** (tau - j)) / (1 - momentum) for j in range(tau)]))
    p = np.array(examples) / sum(examples)
    norms = np.array([np.abs(v).sum() for v in a])
    x = start + (p @ norms) * sum(pi * d / n for pi, d, n in zip(p, local, norms))
    fed_nova.append({"momentum": momentum, "proximal": proximal, "reach": norms.tolist(), "x": x.tolist()})

participants = {"deltas": [d.tolist() for d in local], "losses": losses, "examples": examples, "steps": steps}
print(json.dumps({
    "start": start.tolist(), "deltas": [d.tolist() for d in deltas], "optimizers": optimizers,
    "participants": participants, "q_ffl": q_ffl, "fed_nova": fed_nova,
}, indent=1))
