#!/usr/bin/env python3
"""Turns what `ncu --csv --page raw` prints into a JSON object a line: the kernel and its metrics."""
import csv
import json
import sys

# The program's own output and ncu's remarks come first.
table = [line for line in sys.stdin if line.startswith('"')]
if len(table) < 3:
    sys.exit("ncu printed no table")
rows = csv.DictReader(table)
units = next(rows)
for row in rows:
    figures = {}
    for name, value in row.items():
        if "." in name or name.startswith("launch__"):
            try:
                figures[f"{name} [{units[name]}]" if units[name] else name] = float(value.replace(",", ""))
            except ValueError:
                figures[name] = value
    print(json.dumps({"what": "ncu", "kernel": row["Kernel Name"].split("(")[0], **figures}))
