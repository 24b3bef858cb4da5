"""Writes batch.json: ids and draws of fixed batches, from the documentation of `secure_agg::batch` alone and sharing no code with the
crate.

    python3 batch.py > batch.json
"""
import hashlib
import json
import struct

P = b"fl-secagg/1"


def H(x):
    return hashlib.sha256(x).digest()


def enc(x):
    return struct.pack(">I", len(x)) + x


def label(name):
    return enc(P) + enc(name)


def batch_id(ids):
    return H(label(b"batch") + struct.pack(">I", len(ids)) + b"".join(map(enc, sorted(ids))))


draw, size = bytes([0xD7]) * 16, 3
ids = [b"client-%d" % i for i in range(1, 10)]
nonces = [bytes([0x60 + i]) * 32 for i in range(1, 10)]
commitments = [H(label(b"batch-nonce") + draw + enc(i) + nonce) for i, nonce in zip(ids, nonces)]
certificates = [b"cert-%d" % i for i in range(1, 10)]
signatures = [bytes([0x50 + i]) * 64 for i in range(1, 10)]

# The pool as bytes: version 1, kind 14, draw, size, and the entries with the number of their bytes before them.
entries = b"".join(
    bytes([len(i)]) + i + struct.pack(">H", len(certificate)) + certificate + commitment + signature
    for i, certificate, commitment, signature in zip(ids, certificates, commitments, signatures)
)
pool = bytes([1, 14]) + draw + struct.pack(">H", size) + enc(entries)
seed = H(label(b"batch-draw") + enc(H(label(b"batch-pool") + enc(pool))) + b"".join(map(enc, nonces)))
places = sorted((H(label(b"batch-place") + seed + struct.pack(">I", at)), i) for at, i in enumerate(ids, 1))
order = [i for _, i in places]
batches = [sorted(order[at : at + size]) for at in range(0, len(order), size)]
print(
    json.dumps(
        {
            "pool": pool.hex(),
            "nonces": [nonce.hex() for nonce in nonces],
            "commitments": [commitment.hex() for commitment in commitments],
            "batches": [[i.decode() for i in batch] for batch in batches],
            "ids": [batch_id(batch).hex() for batch in batches],
            "id_of_all": batch_id(ids).hex(),
        },
        indent=2,
    )
)
