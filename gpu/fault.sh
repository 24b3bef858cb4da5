#!/usr/bin/env bash
# Builds fault.c as FOLDER/libcuda.so, against a driver that is only a name.
set -euo pipefail
folder=${1:?the folder}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
gcc -shared -Wl,-soname,libcuda.so.1 -o "$scratch/libcuda.so" -x c - <<<'int cuInit(unsigned flags) { return (int)flags; }'
mkdir -p "$folder"
gcc -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -Wl,-soname,libtributary_fault.so -Wl,--no-as-needed \
    -o "$folder/libcuda.so" "$(dirname "$0")/fault.c" -L"$scratch" -lcuda
