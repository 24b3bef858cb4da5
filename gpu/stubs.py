#!/usr/bin/env python3
"""Stand-ins for NVIDIA's libraries at link time: a program that is linked with them needs none of NVIDIA's to start.

    stubs.py FOLDER    writes libcuda.a, libnvrtc.a, libcurand.a, libcublas.a, libcublasLt.a and an empty libcudart.a

candle links these libraries, so its programs do not start where one is absent. Each function here is a jump whose target is
looked up in the real library (dlopen) when it is called for the first time. If the library or the function is absent, the call
returns the library's own error. The functions' names come from the bindings of the crate cudarc. x86-64 and Linux only.

Only objects of nvcc call libcudart, and toolkit.sh leaves them out.
"""
import glob
import os
import pathlib
import re
import subprocess
import sys

# Library: folder of its bindings in cudarc, what its functions start with, names to try, what a missing function returns.
LIBRARIES = {
    "cuda": ("driver", r"cu[A-Z]", ["libcuda.so.1", "libcuda.so"], 34),  # CUDA_ERROR_STUB_LIBRARY
    "nvrtc": ("nvrtc", r"nvrtc", ["libnvrtc.so.13", "libnvrtc.so.12"], 1),  # out of memory, its first code
    "curand": ("curand", r"curand", ["libcurand.so.10"], 203),  # CURAND_STATUS_INITIALIZATION_FAILED
    "cublas": ("cublas", r"cublas(?!Lt)", ["libcublas.so.13", "libcublas.so.12"], 1),  # CUBLAS_STATUS_NOT_INITIALIZED
    "cublasLt": ("cublaslt", r"cublasLt", ["libcublasLt.so.13", "libcublasLt.so.12"], 1),
}
# The first six integers and eight floats of a call are in registers; all are kept while the target is looked up.
LOOKUP = """
.Llookup:
  pushq %rbp
  movq %rsp, %rbp
  andq $-16, %rsp
  subq $192, %rsp
  movq %rdi,0(%rsp); movq %rsi,8(%rsp); movq %rdx,16(%rsp); movq %rcx,24(%rsp); movq %r8,32(%rsp); movq %r9,40(%rsp)
  movdqu %xmm0,48(%rsp); movdqu %xmm1,64(%rsp); movdqu %xmm2,80(%rsp); movdqu %xmm3,96(%rsp)
  movdqu %xmm4,112(%rsp); movdqu %xmm5,128(%rsp); movdqu %xmm6,144(%rsp); movdqu %xmm7,160(%rsp)
  movl %eax, %edi
  call tributary_lookup_{name}
  movq %rax, %r11
  movq 0(%rsp),%rdi; movq 8(%rsp),%rsi; movq 16(%rsp),%rdx; movq 24(%rsp),%rcx; movq 32(%rsp),%r8; movq 40(%rsp),%r9
  movdqu 48(%rsp),%xmm0; movdqu 64(%rsp),%xmm1; movdqu 80(%rsp),%xmm2; movdqu 96(%rsp),%xmm3
  movdqu 112(%rsp),%xmm4; movdqu 128(%rsp),%xmm5; movdqu 144(%rsp),%xmm6; movdqu 160(%rsp),%xmm7
  movq %rbp,%rsp
  popq %rbp
  jmp *%r11
.bss
.balign 8
.globl tributary_targets_{name}
.hidden tributary_targets_{name}
tributary_targets_{name}:
.Ltargets: .skip {size}
.section .note.GNU-stack,"",@progbits
"""

RESOLVER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
static const char *const functions[] = {%(functions)s};
static const char *const files[] = {%(files)s};
__attribute__((visibility("hidden"))) extern _Atomic(void *) tributary_targets_%(name)s[];
static long absent(void) { return %(error)d; }
__attribute__((visibility("hidden"))) void *tributary_lookup_%(name)s(unsigned index) {
  void *library = 0, *target = 0;
  /* Opened again for every function: the loader counts, and hands out the one it has. */
  for (unsigned i = 0; !library && i < sizeof files / sizeof *files; i++)
    library = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
  if (library) target = dlsym(library, functions[index]);
  if (!target) target = (void *)absent;
  atomic_store(&tributary_targets_%(name)s[index], target);
  return target;
}
"""


def functions(bindings, pattern):
    """Every function that a version of the bindings declares."""
    names = set()
    for source in glob.glob(f"{bindings}/**/*.rs", recursive=True):
        names |= set(re.findall(r"pub (?:unsafe )?fn (\w+)\s*\(", pathlib.Path(source).read_text()))
    return sorted(name for name in names if re.match(pattern, name))


def write(folder, name, names, files, error):
    jumps = (
        f".globl {function}\n.type {function},@function\n{function}:\n  movq .Ltargets+{8 * index}(%rip), %r11\n"
        f"  testq %r11, %r11\n  je 1f\n  jmp *%r11\n1: movl ${index}, %eax\n  jmp .Llookup\n"
        for index, function in enumerate(names)
    )
    assembly = ".text\n" + "".join(jumps) + LOOKUP.format(name=name, size=8 * len(names))
    quoted = lambda words: ",".join(f'"{word}"' for word in words)
    resolver = RESOLVER % {"functions": quoted(names), "files": quoted(files), "name": name, "error": error}
    objects = []
    for suffix, text in (("S", assembly), ("c", resolver)):
        source = folder / f"{name}.{suffix}"
        source.write_text(text)
        objects.append(folder / f"{name}_{suffix}.o")
        subprocess.run(["gcc", "-c", "-fPIC", "-O1", source, "-o", objects[-1]], check=True)
    archive = folder / f"lib{name}.a"
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", archive, *objects], check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    home = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    found = glob.glob(f"{home}/registry/src/*/cudarc-0.19.*/src")
    if len(found) != 1:
        sys.exit(f"one cudarc 0.19 is expected in {home}/registry/src (cargo fetch), not {len(found)}")
    for name, (bindings, pattern, files, error) in LIBRARIES.items():
        names = functions(f"{found[0]}/{bindings}/sys", pattern)
        write(folder, name, names, files, error)
        print(f"lib{name}.a: {len(names)} functions, looked up in {' or '.join(files)}")
    (folder / "libcudart.a").unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", folder / "libcudart.a"], check=True)


if __name__ == "__main__":
    main()
