#!/usr/bin/env python3
"""Checks that the hot loops of training keep their sums in vector registers, in executables and libraries as people install them.

vectors.py FILE…, or vectors.py --test. Needs objdump.

A crate of kernels in several codegen units loses the inlining between them (`[profile.release]` of Cargo.toml): each multiplication then
stores and loads its sum, and training takes 1.6 to 2.8 times as long. It shows without a clock. In the functions that pulp compiles for
an instruction set (`vectorize::imp`), moves of vector registers from or to the stack are counted: with one unit 0 to 2 of them beside 21
or 45 multiply-adds, with four units 63 and 135.
"""

import re
import subprocess
import sys

#: Multiply-adds of a function that counts as a product of matrices.
LEAST = 16
#: Moves from and to the stack, for one multiply-add.
MOST = 0.25
NAME = re.compile(r"^[0-9a-f]+ <(.*)>:$")
MULTIPLY = re.compile(r"\bvfn?m(add|sub)\d+ps\b.*%[yz]mm")
STACK = re.compile(r"\(%r[sb]p\),%[yz]mm|%[yz]mm\d+,-?(0x[0-9a-f]+)?\(%r[sb]p\)")


def products(lines):
    """Multiply-adds, and moves from and to the stack, of each hot function."""
    found, counts = [], None
    for line in lines:
        if name := NAME.match(line):
            counts = [0, 0] if "vectorize::imp" in name[1] else None
            if counts is not None:
                found.append(counts)
        elif counts is not None:
            counts[0] += bool(MULTIPLY.search(line))
            counts[1] += bool(STACK.search(line))
    return [tuple(counts) for counts in found if counts[0] >= LEAST]


def check(file, found):
    """What is wrong with a file that has these products."""
    if not found:
        return f"{file}: no function of vectorize::imp has {LEAST} multiply-adds: were its symbols stripped, or renamed?"
    spilled = [f"{spills} for {count}" for count, spills in found if spills > MOST * count]
    if spilled:
        return f"{file}: sums are moved from and to the stack ({', '.join(spilled)} multiply-adds): build its kernels in one codegen unit"
    return None


def test():
    def function(name, spills):
        multiply = " vfmadd231ps (%rdi,%rax,4),%ymm1,%ymm0"
        moves = [" vmovaps %ymm0,0x40(%rsp)", " vmovups -0x20(%rbp),%zmm3"]
        return [f"0000000000001000 <{name}>:", *[multiply] * 20, *(moves * spills)[:spills], " mov 0x8(%rsp),%rax", " ret"]

    hot, cold = "pulp::x86::v3::V3::vectorize::imp", "main"
    assert products(function(hot, 0) + function(cold, 99) + function(hot, 7)) == [(20, 0), (20, 7)]
    assert check("a", [(20, 0), (45, 2)]) is None
    assert "7 for 20" in check("a", [(20, 0), (20, 7)])
    assert "symbols" in check("a", products(function(cold, 0)))
    print("vectors.py: spilled and missing kernels are found")


def main(files):
    wrong = []
    for file in files:
        command = ["objdump", "--disassemble", "--no-show-raw-insn", "--demangle", file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            found = products(running.stdout)
        if running.returncode != 0:
            sys.exit(f"objdump {file} ended with {running.returncode}")
        print(f"{file}: (multiply-adds, moves from and to the stack) {found}")
        wrong.append(check(file, found))
    if any(wrong):
        sys.exit("\n".join(filter(None, wrong)))


if __name__ == "__main__":
    test() if sys.argv[1:] == ["--test"] else main(sys.argv[1:])
