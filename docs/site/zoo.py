#!/usr/bin/env python3
"""Runs the commands of docs/ZOO.md and compares the accuracy with the page's: zoo.py PROGRAM [SECONDS], those that take at most so long there.

Processors differ in how wide they add, so that a figure may be off by 1.5 points; asynchronous rounds, by 3.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PAGE = pathlib.Path(__file__).resolve().parent.parent / "ZOO.md"
ROW = re.compile(r"^\| (.*) \| `tributary (.*)` \| ([\d.?]+) % \| ([\d.?]+) \|$", re.M)


def accuracy(program, words):
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run([program, "--format", "json", *words, "--dir", folder + "/demo"], check=True, capture_output=True, text=True).stdout
    return 100 * json.loads(said.splitlines()[-1])["accuracy"]


def main():
    program, most = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    wrong = []
    for what, command, told, seconds in ROW.findall(PAGE.read_text()):
        if seconds != "?" and float(seconds) > most:
            continue
        began = time.monotonic()
        got = accuracy(program, command.split())
        print(f"{what}: {got:.2f} % in {time.monotonic() - began:.1f} s; the page says {told} % and {seconds} s", flush=True)
        if told != "?" and abs(got - float(told)) > (3 if "asynchronous" in command else 1.5):
            wrong.append(what)
    if wrong:
        sys.exit("not what the page says: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
