#!/usr/bin/env bash
# Holds gpu/ against what it promises, without a GPU: run.sh does every section that can be had at small sizes, on the stand-in
# for NVIDIA's driver and on software Vulkan where that is here, and its JSON fills docs/GPU.md's rows.
#
#   .ci/gpu.sh BINARY     the release binary, which needs no GPU feature
#
# Ends with 77, and says so, without software Vulkan.
#
# The programs of aggregation are those that the kernels' tests built. What a bundle holds of candle is not built here.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for script in gpu/*.sh .ci/gpu.sh; do bash -n "$script"; done

bundle=$work/bundle
mkdir -p "$bundle/bin" "$bundle/lib" "$work/driver"
cp gpu/*.sh gpu/*.py "$bundle"
echo '{"commit":"a rehearsal"}' >"$bundle/bundle.json"
ln -s "$binary" "$bundle/bin/tributary"
cargo test --no-run -p aggregation --features cuda,wgpu,host-cuda-test --test devices --test cuda_stand_in --bench devices \
    --message-format=json-render-diagnostics >"$work/built"
python3 - "$work/built" "$bundle/bin" <<'PYTHON'
import json, os, sys
names = {"devices.test": "aggregation-devices", "devices.bench": "aggregation-bench", "cuda_stand_in.test": "stand-in-cases"}
for line in open(sys.argv[1]):
    told = json.loads(line)
    if told.get("executable"):
        os.symlink(told["executable"], f"{sys.argv[2]}/{names[told['target']['name'] + '.' + told['target']['kind'][0]]}")
PYTHON
c++ -std=c++17 -O2 -shared -fPIC -Wno-unknown-pragmas aggregation/tests/cuda_stand_in/driver.cpp -o "$work/driver/libcuda.so.1"

# The device that is lost for good.
bash gpu/fault.sh "$bundle/lib/fault"
LD_LIBRARY_PATH=$bundle/lib/fault:$work/driver FAULT_FILE=$work/driver REASON="unspecified launch failure" "$bundle/bin/stand-in-cases" --exact falls_back --ignored

# A program linked with the stand-ins of libraries says that there is no driver, and finds one that is there.
python3 gpu/stubs.py "$work/stubs" >/dev/null
printf '%s\n' '#include <stdio.h>' 'int cuInit(unsigned); int cuDeviceGetCount(int *); int cublasCreate_v2(void **);' \
    'int main(void) { int n = 0; void *h; printf("%d ", cuInit(0)); printf("%d ", cuDeviceGetCount(&n)); printf("%d %d\n", n, cublasCreate_v2(&h)); }' >"$work/lazy.c"
gcc "$work/lazy.c" -o "$work/lazy" -L"$work/stubs" -lcuda -lcublas
if readelf -d "$work/lazy" | grep -E 'NEEDED.*(cuda|cublas)'; then exit 1; fi
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then [ "$("$work/lazy")" = "34 34 0 1" ]; fi
[ "$(LD_LIBRARY_PATH=$work/driver "$work/lazy")" = "0 0 2 1" ]

devices=cuda
status=0
if ldconfig -p | grep -q 'libvulkan\.so\.1' && compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null; then
    devices+=" wgpu:llvmpipe"
else
    echo "SKIPPED: no software Vulkan (mesa-vulkan-drivers, libvulkan1), so run.sh did nothing through Vulkan"
    status=77
fi
LD_LIBRARY_PATH=$work/driver DEVICES=$devices BENCH="words=20000 masks=8" "$bundle/run.sh" machine masks vulkan sums robust pytorch sanitizer ncu training >"$work/devices.json"
DEVICES=cpu TRAINING=cpu DEMO_ROUNDS=2 FEDERATION_ROUNDS=8 KILL_AFTER=0.7 "$bundle/run.sh" devices conformance demo loss federation >"$work/cpu.json"
python3 - "$devices" "$work/devices.json" "$work/cpu.json" <<'PYTHON'
import json, sys
for file in sys.argv[2:]:
    for name, section in json.load(open(file))["sections"].items():
        absent = name in ("pytorch", "sanitizer", "ncu", "training", "loss") or name == "vulkan" and "wgpu" not in sys.argv[1]
        if section["status"] != ("not run" if absent else "ok") and not (name in ("pytorch", "ncu", "sanitizer") and section["status"] == "ok"):
            sys.exit(f"{name}: {section}")
        if section["status"] == "ok" and not section["results"]:
            sys.exit(f"{name} tells nothing")
PYTHON
python3 gpu/fill.py --check "$work/devices.json"
echo "run.sh: what needs no GPU was run on $devices and the CPU; conformance, training, compute-sanitizer and ncu on a device were not"
exit "$status"
