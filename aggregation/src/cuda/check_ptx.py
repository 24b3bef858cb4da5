#!/usr/bin/env python3
"""Assembles the committed PTX for sm_90 and fails when a kernel got worse; needs no GPU and no CUDA toolkit.

What a GPU would run is read from the machine code: no spills, at most 64 registers (so 1,024 threads fit on a
multiprocessor) in any kernel; of the mask kernel at most 1,050 instructions per 64-byte block, few enough that arithmetic stays the limit. Also prints the
ceiling that the count implies. ptxas and nvdisasm come from PyPI wheels that pip checks against the digests below, or
from the folder named in $CUDA_BIN. Where pip cannot get them the exit status is 77.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PTX = HERE / "kernels.sm_75.ptx"
WHEELS = [
    ("nvidia-cuda-nvcc==13.0.88", "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"),
    ("nvidia-cuda-nvdisasm==13.5.37", "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca"),
]
ARCH, KERNEL = "sm_90", "unmask"
MAX_REGISTERS, MAX_INSTRUCTIONS = 64, 1050
# An H200: multiprocessors, and the boost clock of its data sheet in GHz.
MULTIPROCESSORS, CLOCK = 132, 1.98
# Instructions for the multiplier's pipe; the other arithmetic shares a pipe of its own, 64 lanes a clock each.
MULTIPLIER = re.compile(r"IMAD|FFMA|FMUL|FADD")
NOT_ARITHMETIC = re.compile(r"LD|ST|BRA|UI|UMOV|ULDC|R2UR|EXIT|NOP|BSYNC|BSSY|S2R|ATOM|RED|WARPSYNC|UL|US|UP|R2P")


def tools(folder):
    if os.environ.get("CUDA_BIN"):
        return pathlib.Path(os.environ["CUDA_BIN"])
    wanted = pathlib.Path(folder) / "requirements.txt"
    wanted.write_text("".join(f"{wheel} --hash=sha256:{digest}\n" for wheel, digest in WHEELS))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--platform", "manylinux2014_x86_64", "-d", folder, "-r", str(wanted)]
    got = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if got.returncode:
        print(got.stderr, file=sys.stderr)
        if "DO NOT MATCH THE HASHES" in got.stderr:
            sys.exit(1)
        print("SKIPPED: ptxas and nvdisasm cannot be had, so the machine code was not checked")
        sys.exit(77)
    for wheel in pathlib.Path(folder).glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    place = pathlib.Path(folder) / "nvidia/cu13/bin"
    for name in ("ptxas", "nvdisasm"):
        (place / name).chmod(0o755)
    return place


def assemble(place, cubin):
    run = [place / "ptxas", "-v", f"-arch={ARCH}", PTX, "-o", cubin]
    log = subprocess.run(run, check=True, capture_output=True, text=True).stderr
    kernels = {}
    for part in log.split("Compiling entry function '")[1:]:
        stores, loads = map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part).groups())
        kernels[part.split("'")[0]] = int(re.search(r"Used (\d+) registers", part).group(1)), stores + loads
    return kernels


def seed_loop(place, cubin):
    """The instructions of the kernel's longest loop: one mask's block."""
    text = subprocess.run([place / "nvdisasm", cubin], check=True, capture_output=True, text=True).stdout
    body = re.search(rf"\.text\.{KERNEL}:(.*?)(?=\n//-+ \.|\Z)", text, re.S).group(1)
    labels, code, longest = {}, [], []
    for line in body.splitlines():
        label = re.match(r"\s*(\.L_\w+):", line)
        if label:
            labels[label.group(1)] = len(code)
            continue
        found = re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)\s*(.*?)\s*;", line)
        if not found:
            continue
        code.append(found.group(1))
        target = re.search(r"\.L_\w+", found.group(2))
        start = labels.get(target.group(0)) if target and found.group(1).startswith("BRA") else None
        if start is not None and len(code) - start > len(longest):
            longest = code[start:]
    return longest


def main():
    with tempfile.TemporaryDirectory() as folder:
        place, cubin = tools(folder), pathlib.Path(folder) / "kernels.cubin"
        kernels = assemble(place, cubin)
        loop = seed_loop(place, cubin)
    multiplier = sum(bool(MULTIPLIER.match(name)) for name in loop)
    other = sum(not MULTIPLIER.match(name) and not NOT_ARITHMETIC.match(name) for name in loop)
    clocks = max(multiplier / 64, other / 64, len(loop) / 128, 1)
    ceiling = MULTIPROCESSORS * CLOCK * 64 / clocks
    for kernel, (registers, spills) in sorted(kernels.items()):
        print(f"{PTX.name} for {ARCH}, {kernel}: {registers} registers, {spills} bytes of spills")
    print(f"{KERNEL}: {len(loop)} instructions per block")
    print(f"  {multiplier} on the multiplier, {other} on the other pipe: at most {ceiling:.0f} GB/s of keystream on an H200")
    print(f"  most frequent: {dict(collections.Counter(name.split('.')[0] for name in loop).most_common(6))}")
    worst_registers, worst_spills = (max(figures) for figures in zip(*kernels.values()))
    if worst_spills or worst_registers > MAX_REGISTERS or not 900 < len(loop) <= MAX_INSTRUCTIONS:
        sys.exit(f"limits: no spills, {MAX_REGISTERS} registers, {MAX_INSTRUCTIONS} instructions per block")


if __name__ == "__main__":
    main()
