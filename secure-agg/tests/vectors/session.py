"""Writes session.json: the derivations of a session, from the specification's text alone and sharing no code with the crate.

    python3 session.py > session.json
"""
import hashlib
import json
import struct

P = b"fl-secagg/1"


def H(x):
    return hashlib.sha256(x).digest()


def enc(x):
    return struct.pack(">I", len(x)) + x


def shape(words, bits, bound, margin):
    return struct.pack(">QBQQ", words, bits, bound, margin)


def bitmap(n, members):
    bits = bytearray((n + 7) // 8)
    for i in members:
        bits[(i - 1) // 8] |= 1 << ((i - 1) % 8)
    return bytes(bits)


task, round_, attempt = b"task-1", 7, 2
model_hash = bytes([0x4D]) * 32
# suite, min and max cohort, gamma, delta, min_included, two vectors, application digest
config = struct.pack(">BHHIIH", 1, 3, 9, 100_000, 200_000, 0)
config += shape(1000, 20, 500, 7) + shape(3, 32, 1 << 20, 0) + bytes([0xA9]) * 32
n = 3
t = (n + n // 10) // 2 + 1
k_m, t_m = n - 1, t - 1
cfg_hash = H(enc(P) + enc(b"cfg") + enc(config) + struct.pack(">III", t, k_m, t_m))

entries, root = [], enc(P) + enc(b"roster") + struct.pack(">I", n)
for i in (1, 2, 3):
    entry = {
        "client_id": b"client-%d" % i,
        "id_pk": bytes([0x10 + i]) * 32,
        "c_pk": bytes([0x20 + i]) * 32,
        "s_pk": bytes([0x30 + i]) * 32,
        "b_commit": bytes([0x40 + i]) * 32,
        "signature": bytes([0x50 + i]) * 64,
    }
    root += b"".join(enc(v) for v in entry.values())
    entries.append({k: v.hex() for k, v in entry.items()})
roster_root = H(root)
sid = H(
    enc(P) + enc(b"sid") + enc(task) + struct.pack(">QI", round_, attempt) + enc(model_hash) + enc(cfg_hash) + enc(roster_root)
)

u2 = H(struct.pack(">I", 10) + bitmap(10, [1, 2, 9, 10]))
u3 = H(struct.pack(">I", 10) + bitmap(10, [2, 10]))
masked = sid + struct.pack(">HQ", 2, 2500) + bytes([0x77]) * 32 + u2 + struct.pack(">HB", 10, 2) + bitmap(10, [1, 10])
advertise = bytes([len(task)]) + task + struct.pack(">QI", round_, attempt)
advertise += bytes([8]) + b"client-1" + struct.pack(">H", 4) + b"cert" + bytes([0x21]) * 32 + bytes([0x31]) * 32 + bytes([0x41]) * 32
body = bytes(i % 251 for i in range((16 << 20) + 5))
print(
    json.dumps(
        {
            "config": config.hex(),
            "t": t,
            "k_m": k_m,
            "t_m": t_m,
            "cfg_hash": cfg_hash.hex(),
            "entries": entries,
            "roster_root": roster_root.hex(),
            "sid": sid.hex(),
            "signed_advertise": (P + b"advertise" + enc(task) + struct.pack(">QI", round_, attempt) + H(advertise)).hex(),
            "signed_masked": (P + b"masked" + sid + H(masked)).hex(),
            "signed_u3": (P + b"u3" + sid + u2 + u3).hex(),
            "upload_digest": H(
                enc(P) + enc(b"masked-input") + struct.pack(">Q", len(body)) + H(body[: 16 << 20]) + H(body[16 << 20 :])
            ).hex(),
            "part_root": H(
                enc(P)
                + enc(b"masked-input")
                + struct.pack(">Q", len(body))
                + H(body[: 8 << 20])
                + H(body[8 << 20 : 16 << 20])
                + H(body[16 << 20 :])
            ).hex(),
        },
        indent=2,
    )
)
