#!/usr/bin/env python3
"""Compiles kernels.cu to kernels.sm_75.ptx with NVRTC 12.4 from PyPI; needs no GPU, no driver and no CUDA toolkit.

    regenerate.py          write the PTX
    regenerate.py --check  fail when the committed PTX is not what kernels.cu compiles to

NVRTC of one version gives the same bytes every time; one line is added that names the source it was made from, which
tests/ptx.rs compares without any compiler. The library is looked for in $NVRTC, else it is unpacked from the
wheel nvidia-cuda-nvrtc-cu12 (25 MB), which pip downloads and checks against the digest below. Where pip cannot get it the
exit status is 77.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE, PTX = HERE / "kernels.cu", HERE / "kernels.sm_75.ptx"
WHEEL = "nvidia-cuda-nvrtc-cu12==12.4.127"
DIGEST = "a178759ebb095827bd30ef56598ec182b85547f1508941a3d560eb7ea1fbf338"
OPTIONS = [b"--gpu-architecture=compute_75"]


def library(folder):
    if os.environ.get("NVRTC"):
        return os.environ["NVRTC"]
    wanted = pathlib.Path(folder) / "requirements.txt"
    wanted.write_text(f"{WHEEL} --hash=sha256:{DIGEST}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--platform", "manylinux2014_x86_64", "-d", folder, "-r", str(wanted)]
    got = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if got.returncode:
        print(got.stderr, file=sys.stderr)
        if "DO NOT MATCH THE HASHES" in got.stderr:
            sys.exit(1)
        print(f"SKIPPED: {WHEEL} cannot be had, so the PTX was not compared")
        sys.exit(77)
    (wheel,) = pathlib.Path(folder).glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    # The compiler loads its built-in functions by name.
    for file in sorted(pathlib.Path(folder).glob("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so*")):
        ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    return str(next(pathlib.Path(folder).glob("nvidia/cuda_nvrtc/lib/libnvrtc.so*")))


def compiled(path):
    nvrtc = ctypes.CDLL(path)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.read_bytes(), b"kernels.cu", 0, None, None) == 0
    failed = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), (ctypes.c_char_p * len(OPTIONS))(*OPTIONS))
    if failed:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    return text.value


def fingerprint(text):
    """FNV-1a, 64 bits: enough to notice a forgotten regeneration."""
    state = 0xCBF29CE484222325
    for byte in text:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def main():
    with tempfile.TemporaryDirectory() as folder:
        ptx = compiled(library(folder)).rstrip() + b"\n"
    ptx += f"// made from {SOURCE.name} {fingerprint(SOURCE.read_bytes()):016x}\n".encode()
    if "--check" not in sys.argv[1:]:
        PTX.write_bytes(ptx)
        print(f"wrote {len(ptx)} bytes to {PTX.name}")
    elif PTX.read_bytes() != ptx:
        sys.exit(f"{PTX.name} is not what {SOURCE.name} compiles to: run {sys.argv[0]}")
    else:
        print(f"{PTX.name} is what {SOURCE.name} compiles to ({len(ptx)} bytes)")


if __name__ == "__main__":
    main()
