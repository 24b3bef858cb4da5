"""Verifies a ledger of `tributary privacy export` without Tributary: the signature, and both totals against Google's dp-accounting.

    pip install dp-accounting==0.6.0 cryptography
    python verify_ledger.py ledger.json [KEY]       # KEY: from `tributary audit head`

Prints each total of the ledger beside dp-accounting's for continuous noise of the same size. A ledger may be above it, since its noise is of
integers, and must never be below. Exits with 1 if the file was changed, or if a figure is too low.
"""

import json
import math
import sys

import dp_accounting as dp
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import rdp_privacy_accountant as rdp

ORDERS = [*range(2, 64), 128, 256, 512, 1024]


def opened(path, key):
    """The signed ledger."""
    with open(path) as file:
        signed = json.load(file)
    ledger = json.loads(signed["ledger"])
    if key is not None and key != ledger["coordinator"]:
        raise SystemExit(f"it is signed by the key {ledger['coordinator']}, not by {key}")
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(ledger["coordinator"]))
        public.verify(bytes.fromhex(signed["signature"]), b"tributary privacy ledger export 1\0" + signed["ledger"].encode())
    except InvalidSignature:
        raise SystemExit("the signature does not belong to this text: it was changed or cut off") from None
    return ledger


def noise(release):
    """Standard deviation of the noise over the sensitivity, in the sum."""
    (kind, of), = release["sum"]["noise"].items()
    sigma = {
        "discrete_gaussian": lambda: of["sigma"],
        "discrete_gaussian_shares": lambda: of["sigma"] * math.sqrt(of["shares"]),
        "skellam": lambda: math.sqrt(of["variance"]),
    }[kind]()
    return sigma / release["sum"]["sensitivity"]


def event(release, knows_cohort):
    """The release as dp-accounting takes it."""
    multiplier, sampled = noise(release), release["sampled"]
    if release.get("tree_release"):
        # A participant is in one node of each level.
        levels = release["tree_release"].bit_length() - (release["tree_release"] - 1).bit_length()
        return dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), levels) if levels else dp.NoOpDpEvent()
    if sampled == "anyhow":
        return dp.GaussianDpEvent(multiplier)
    if "fixed_size" in sampled:
        # A replacement takes one update away and adds another.
        gaussian, of = dp.GaussianDpEvent(multiplier / 2), sampled["fixed_size"]
        return gaussian if knows_cohort else dp.SampledWithoutReplacementDpEvent(of["population"], of["cohort"], gaussian)
    gaussian = dp.GaussianDpEvent(multiplier)
    return gaussian if knows_cohort else dp.PoissonSampledDpEvent(sampled["poisson"]["rate"], gaussian)


def epsilon(releases, delta, knows_cohort):
    """dp-accounting's figure for these releases, by the tighter of its two accountants that knows them."""
    replaced = any("fixed_size" in release["sampled"] for release in releases)
    neighbours = dp.NeighboringRelation.REPLACE_ONE if replaced else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountants = [rdp.RdpAccountant(ORDERS, neighbours)] + ([] if replaced else [PLDAccountant(neighbours)])
    found = []
    for accountant in accountants:
        for release in releases:
            accountant.compose(event(release, knows_cohort))
        found.append(accountant.get_epsilon(delta))
    return min(found)


ledger = opened(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
rows = [exported["row"] for exported in ledger["rows"]]
if not rows:
    raise SystemExit("nothing has been released")
releases, delta, total = [row["release"] for row in rows], ledger["privacy"]["delta"], rows[-1]["total"]
if any(release.get("bands") for release in releases):
    raise SystemExit("dp-accounting has no event for a banded matrix; `tributary privacy verify` charges it again")
# A participant is in so many of them at most: those with the least noise.
most = releases[0].get("participations") or len(releases)
charged = sorted(releases, key=noise)[:most]
print(f"task {ledger['name']}, {len(releases)} releases, delta {delta:g}, signed by {ledger['coordinator']}")
low = False
for name, knows_cohort in [("published", False), ("cohort_known", True)]:
    theirs = epsilon(charged, delta, knows_cohort)
    low |= total[name] < theirs * (1 - 1e-3)
    ratio = total[name] / theirs if theirs else math.inf
    print(f"{name:<13} ledger {total[name]:.4f}, dp-accounting {theirs:.4f}, ratio {ratio:.4f}")
sys.exit("a figure of the ledger is too low" if low else 0)
