"""Checks that every parameter of a safetensors file is the number, give or take so much: mean.py FILE NUMBER TOLERANCE."""

import json
import struct
import sys

path, number, tolerance = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with open(path, "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
count = sum((end - start) // 4 for start, end in (tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__"))
values = struct.unpack(f"<{count}f", data)
print(f"{count} parameters from {min(values)} to {max(values)}")
assert count > 0 and all(abs(value - number) <= tolerance for value in values), values
