"""Prints the SHA-256 of a sealed record of three pieces, made from the description in src/journal/sealed.rs alone.

Needs cryptography: python sealed.py. The unit test there seals the same.
"""

import hashlib
import struct

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PIECE = 1 << 20
KEY, ID, FOLLOWS, NAME = b"\1" * 32, b"\3" * 32, b"\2" * 32, b"round"
# In the order of their names: a name's length, the name, 0 if it is sealed and 1 if not, the id of its write or the
# digest of its bytes.
CONTENTS = b"\x08identity\1" + b"\4" * 32 + b"\x05round\0" + ID
RECORD = b"\7" * (2 * PIECE) + b"end"

prefix = b"tributary sealed" + struct.pack("<HQ", 1, 7) + ID + FOLLOWS + struct.pack("<I", len(CONTENTS))
cipher = ChaCha20Poly1305(HKDF(SHA256(), 32, b"tributary/journal/1", ID + NAME).derive(KEY))


def seal(kind, number, text):
    """Kind 0 is the contents, 1 a piece that others follow, 2 the last."""
    return cipher.encrypt(struct.pack("<B3xQ", kind, number), text, prefix + NAME)


pieces = [RECORD[begin : begin + PIECE] for begin in range(0, len(RECORD), PIECE)]
sealed = prefix + seal(0, 0, CONTENTS)
for number, piece in enumerate(pieces):
    sealed += seal(2 if number + 1 == len(pieces) else 1, number, piece)
print(hashlib.sha256(sealed).hexdigest())
