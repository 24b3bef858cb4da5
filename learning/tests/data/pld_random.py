"""learning/tests/data/pld_random.csv: python3.11 -m venv v; v/bin/pip install dp-accounting==0.6.0; v/bin/python pld_random.py"""
import math, random
import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as pld
import importlib.metadata as m
random.seed(13)
rows = []
import sys
def eps(q, z, T, d, pess, h):
    p = pld.from_gaussian_mechanism(z, sampling_prob=q, pessimistic_estimate=pess, value_discretization_interval=h,
                                    use_connect_dots=pess)
    return p.self_compose(T).get_epsilon_for_delta(d)
print("# dp-accounting", m.version("dp-accounting"), file=sys.stderr)
print("q,noise_multiplier,T,delta,eps_below,eps_above")
for i in range(60):
    q = 1.0 if i % 6 == 0 else 10 ** random.uniform(-3.5, 0)
    z = 10 ** random.uniform(math.log10(0.15 if i % 6 else 0.1), math.log10(12))
    T = int(10 ** random.uniform(0, 3.5)) if z > 0.5 else int(10 ** random.uniform(0, 1.5))
    if q == 1.0: T = min(T, 300)
    q = float(f"{q:.6g}"); z = float(f"{z:.6g}")
    d = random.choice([1e-4, 1e-5, 1e-6, 1e-8])
    h = 1e-4 if T < 30 else 1e-5 if z > 0.4 else 1e-4
    lo = hi = None
    try:
        lo, hi = eps(q, z, T, d, False, h), eps(q, z, T, d, True, 1e-4)
    except Exception as e:
        print("# failed", q, z, T, d, e, file=sys.stderr)
    print(f"{q!r},{z!r},{T},{d:g},{lo!r},{hi!r}", flush=True)
