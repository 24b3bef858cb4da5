#!/usr/bin/env bash
# Puts everything that a bare machine with an NVIDIA GPU needs to run run.sh into FOLDER (gpu/bundle), at most 55 MB: programs with
# MNIST's test set in them, and PTX. Needs no GPU. It fails when a program needs a library that a bare Debian 12 lacks.
#
#   bundle.sh [FOLDER]      with training on candle: NVIDIA's compiler comes from PyPI (160 MB) and takes two minutes of a core once
#   TRAINING=no bundle.sh   without
#   PROFILE=dev bundle.sh   unoptimised but for sums and training's own passes, for a rehearsal: demos are slower, sums nearly as fast
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-gpu/bundle}")
target=${CARGO_TARGET_DIR:-$PWD/target}
# With the repository beside it, 64 MiB can be carried to a lent machine.
most_bytes=55000000
profile=${PROFILE:-release}

rm -rf "$folder"
mkdir -p "$folder"/{bin,lib,ptx}

# Builds, strips and keeps a program: its name in the bundle, what cargo calls it, cargo's arguments.
keep() {
    local name=$1 kind=$2 program
    shift 2
    program=$(cargo build --locked --profile "$profile" "$@" --message-format=json-render-diagnostics | python3 -c '
import json, sys
for line in sys.stdin:
    told = json.loads(line)
    if told.get("executable") and told["target"]["name"] + "." + told["target"]["kind"][0] == sys.argv[1]:
        print(told["executable"])' "$kind")
    strip --strip-all "$program" -o "$folder/bin/$name"
}
keep tributary tributary.bin -p tributary --features wgpu
keep aggregation-devices devices.test -p aggregation --features cuda,wgpu --test devices
keep aggregation-bench devices.bench -p aggregation --features cuda,wgpu --bench devices

drivers='"sums":"12.4"'
if [ "${TRAINING:-yes}" = yes ]; then
    gpu/toolkit.sh "$target/toolkit"
    (
        # shellcheck disable=SC1091  # toolkit.sh has written it
        . "$target/toolkit/env"
        keep tributary-train tributary.bin -p tributary --no-default-features --features train-cuda
        keep training-bench device-training.bin -p client-sdk --features cuda --bin device-training
        # The marking of candle's kernels as CUDA 12.4's is true if the assembler of 12.4 takes each of them.
        count=0
        for kernel in "$(find "$target/$([ "$profile" = dev ] && echo debug || echo "$profile")/build" -path '*candle-kernels-*/out' -printf '%T@ %p\n' | sort -n | tail -n1 | cut -d' ' -f2-)"/*.ptx; do
            "$PTXAS_12_4" -arch=sm_90 "$kernel" -o /dev/null
            count=$((count + 1))
        done
        [ "$count" -gt 0 ]
        echo "ptxas of CUDA 12.4 takes the PTX of candle's $count files of kernels, for sm_90"
    )
    drivers+=',"training":"12.4"'
fi

# The device is lost on demand (section `loss`).
gpu/fault.sh "$folder/lib/fault"

# The loader of Vulkan is small, and often absent where the driver is there.
vulkan=$(ldconfig -p | sed -n 's/.*libvulkan\.so\.1 .*x86-64.*=> //p' | head -n1)
if [ -n "$vulkan" ]; then cp -L "$vulkan" "$folder/lib/libvulkan.so.1"; else echo "no libvulkan.so.1 here (Debian: libvulkan1): the bundle has none" >&2; fi
cp aggregation/src/cuda/{kernels.sm_75.ptx,check_ptx.py} "$folder/ptx"
cp gpu/{run.sh,sections.sh,torch_training.py,ncu.py} "$folder"
cp LICENSE "$folder"

# What every program needs of the system.
newest=0
for program in "$folder"/bin/*; do
    needed=$(readelf -d "$program" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
    beyond=$(grep -vxE 'lib(c|m|dl|rt|pthread)\.so\.[0-9]|libgcc_s\.so\.1|ld-linux-x86-64\.so\.2' <<<"$needed" || true)
    [ -z "$beyond" ] || { echo "$(basename "$program") needs $beyond" >&2 && exit 1; }
    of=$(objdump -T "$program" | grep -o 'GLIBC_2\.[0-9]*' | cut -d. -f2 | sort -n | tail -n1)
    [ "$of" -le "$newest" ] || newest=$of
done
[ "$newest" -le 36 ] || { echo "a program needs glibc 2.$newest; Debian 12 has 2.36" >&2 && exit 1; }
xz -9 --threads=0 "$folder"/bin/*

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit+=" and changes"
printf '{"commit":"%s","built":"%s","rustc":"%s","profile":"%s","glibc":"2.%s","drivers_from_cuda":{%s}}\n' "$commit" "$(date -u +%Y-%m-%dT%H:%MZ)" \
    "$(rustc --version | cut -d' ' -f2)" "$profile" "$newest" "$drivers" >"$folder/bundle.json"
du -b "$folder"/bin/* "$folder"/lib/* "$folder/ptx"
bytes=$(du -bs "$folder" | cut -f1)
echo "$folder: $((bytes / 1000000)) MB of $((most_bytes / 1000000)), glibc 2.$newest or newer; there: bash run.sh"
[ "$bytes" -le $most_bytes ]
