"""learning/tests/data/participations.csv: python3.11 -m venv v; v/bin/pip install dp-accounting==0.6.0; v/bin/python participations.py

The cost of `k` releases, whatever the number of rounds: dp-accounting composes the events of a participant in `k` of them. For Skellam noise,
dp-accounting converts and composes the divergences of Agarwal, Kairouz and Liu (2021), which it lacks."""
import math
import random
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp

random.seed(38)
ORDERS = [float(a) for a in list(range(2, 64)) + [128, 256, 512, 1024]]
SENSITIVITY, DIMENSION = 2.0**16, 8192


def by_pld(z, k, delta, pessimistic):
    h = 1e-4
    one = pld.from_gaussian_mechanism(z, pessimistic_estimate=pessimistic, value_discretization_interval=h,
                                      use_connect_dots=pessimistic)
    return one.self_compose(k).get_epsilon_for_delta(delta)


def gaussian(z, k, delta):
    accountant = rdp.RdpAccountant(ORDERS)
    accountant.compose(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(z), k))
    return accountant.get_epsilon(delta)


def skellam(z, k, delta):
    variance, l2 = (z * SENSITIVITY) ** 2, SENSITIVITY
    l1 = min(math.sqrt(DIMENSION) * l2, l2 * l2)
    close = lambda a: min(((2 * a - 1) * l2 * l2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
    values = [k * (a * l2 * l2 / (2 * variance) + close(a)) for a in ORDERS]
    return rdp.compute_epsilon(ORDERS, values, delta)[0]


print("mechanism,noise_multiplier,rounds,participations,delta,eps_rdp,eps_below,eps_above")
for mechanism, by_rdp in [("distributed_discrete_gaussian", gaussian), ("distributed_skellam", skellam)]:
    for row in range(12):
        k = [1, 1, 1, 2, 2, 3, 4, 5, 8, 10, 20, 40][row]
        rounds = k * random.choice([1, 2, 5, 10])
        z = float(f"{math.sqrt(k) * 10 ** random.uniform(-0.2, 1.0):.6g}")
        delta = random.choice([1e-4, 1e-5, 1e-6, 1e-8])
        figures = [by_rdp(z, k, delta), by_pld(z, k, delta, False), by_pld(z, k, delta, True)]
        print(f"{mechanism},{z!r},{rounds},{k},{delta:g}," + ",".join(f"{float(value)!r}" for value in figures))
