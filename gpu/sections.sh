# The sections of run.sh, which sources this. Each is a function of its own process: it adds results by `record`, ends with
# `lacks` where it cannot be run, and fails by any other status.
# shellcheck shell=bash disable=SC2154  # here, work, records and reason come from run.sh

# Name and limit in seconds, in the order of their worth.
# shellcheck disable=SC2034  # run.sh uses it
SECTIONS=(machine:30 devices:30 conformance:120 masks:120 demo:150 loss:120 vulkan:100 sums:60 robust:60 training:150
    pytorch:100 federation:120 sanitizer:90 ncu:60)

# Runs one section in this process. Nothing that it started stays behind.
run() {
    set -euo pipefail
    trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
    "section_$1"
}

# A string for JSON.
quoted() {
    local text
    text=$(tr -d '\000-\010\013-\037' <<<"$1" | tr '\t' ' ')
    text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\n'/\\n}
    printf '"%s"' "$text"
}
# Adds an object to the section's results: the argument, or in a pipe every line that is one.
record() {
    local line found=1
    if [ $# -gt 0 ]; then
        printf '%s\n' "$1" >>"$records" && return
    fi
    while IFS= read -r line; do
        printf '%s\n' "$line" >&2
        [[ $line != \{*\} ]] || { printf '%s\n' "$line" >>"$records" && found=0; }
    done
    return $found
}
# Adds to the reasons why the section failed.
wrong() { printf '%s; ' "$*" >>"$reason"; }
# Ends a section that cannot be run here.
lacks() { printf '%s' "$*" >"$reason" && exit 77; }

# What was compressed for the journey.
unpack() {
    local file program how=(xz -dc)
    command -v xz >/dev/null || how=(python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)')
    for file in "$here"/bin/*.xz; do
        [ -e "$file" ] || continue
        program=$work/$(basename "$file" .xz)
        "${how[@]}" <"$file" >"$program" || { echo "the bundle's programs cannot be unpacked: xz-utils or python3 is needed" >&2 && exit 1; }
        chmod +x "$program"
    done
}

# Path of a program of the bundle.
program() { if [ -x "$work/$1" ]; then echo "$work/$1"; else echo "$here/bin/$1"; fi; }

# Where libraries are that no package registered: NVIDIA's beside PyTorch or in a toolkit, our own Vulkan loader.
surroundings() {
    local folder found=
    export PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin:/opt/nvidia/nsight-compute
    for folder in /usr/local/nvidia/lib64 /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
        $(python3 -c 'import glob, site, sys
for place in [*site.getsitepackages(), *sys.path]:
    for folder in sorted(glob.glob(place + "/nvidia/*/lib")): print(folder)' 2>/dev/null | sort -u); do
        [ ! -d "$folder" ] || found+=:$folder
    done
    ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' || found+=:$here/lib
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}$found
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH#:}
    local icd=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json
    [ -n "${VK_DRIVER_FILES-}" ] || [ ! -e "$icd" ] || export VK_DRIVER_FILES=$icd
    echo "libraries: $LD_LIBRARY_PATH"
}

section_machine() {
    local name value library folder
    fact() { record "{\"fact\":$(quoted "$1"),\"value\":$(quoted "$2")}"; }
    fact kernel "$(uname -sr)"
    fact processor "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ //'), $(nproc) cores"
    fact glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null || true)"
    if command -v nvidia-smi >/dev/null; then
        for name in name driver_version memory.total compute_cap clocks.max.sm; do
            value=$(nvidia-smi --query-gpu=$name --format=csv,noheader 2>&1 | paste -sd' ') && fact "$name" "$value"
        done
        fact cuda "$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9.]*\).*/\1/p')"
    fi
    # Without the second, a driver cannot translate PTX.
    for library in libcuda.so.1 libnvidia-ptxjitcompiler.so.1 libvulkan.so.1 libcublas.so.13 libcublas.so.12 libcurand.so.10; do
        value=$(
            ldconfig -p 2>/dev/null | sed -n "s/.*$library.*=> //p" || true
            tr : '\n' <<<"$LD_LIBRARY_PATH" | while read -r folder; do ls "$folder/$library" 2>/dev/null || true; done
        )
        value=${value%%$'\n'*}
        fact "$library" "${value:-absent}"
    done
    fact vulkan "$(find /usr/share/vulkan/icd.d /etc/vulkan/icd.d -name '*.json' 2>/dev/null | paste -sd' ' || true) ${VK_DRIVER_FILES-}"
    fact pytorch "$(python3 -c 'import torch; print(torch.__version__, torch.cuda.get_device_name(0) if torch.cuda.is_available() else "without a GPU")' 2>/dev/null || echo absent)"
    getent hosts localhost >/dev/null || fact localhost "does not resolve: whole federations need it in /etc/hosts"
    for name in compute-sanitizer ncu; do fact $name "$(command -v $name || echo absent)"; done
    for name in tributary tributary-train aggregation-devices aggregation-bench training-bench; do
        [ -x "$(program $name)" ] || { fact "$name" "not in this bundle" && continue; }
        value=$(ldd "$(program $name)" 2>/dev/null | grep 'not found' || true)
        [ -z "$value" ] || { fact "$name" "$value" && printf '%s lacks a library' "$name" >"$reason" && return 1; }
    done
}

section_devices() {
    local device answer
    for device in auto $DEVICES; do
        answer=$("$(program tributary)" --format json devices --device "$device" | paste -sd' ') || wrong "$device cannot be used"
        [[ $answer == \{*\} ]] || answer=null
        record "{\"asked\":$(quoted "$device"),\"answer\":$answer}"
    done
    [ ! -s "$reason" ]
}

# The suite that every device must pass: every bit equals the processor's.
section_conformance() {
    local device test outcome
    for device in $DEVICES; do
        case $device in
            cuda) test=cuda::gpus ;;
            wgpu*) test=wgpu::adapters ;;
            *) test=every_cpu_kernel ;;
        esac
        outcome=0
        AGGREGATION_REQUIRE_CUDA=1 AGGREGATION_REQUIRE_WGPU=1 "$(program aggregation-devices)" "$test" --nocapture >"$work/suite" 2>&1 || outcome=$?
        cat "$work/suite"
        record "{\"device\":$(quoted "$device"),\"passed\":$(grep -c '^test .* ok$' "$work/suite" || true),\"ended_with\":$outcome,\"devices\":$(quoted "$(grep -E '^(cuda|wgpu|cpu)[: ]' "$work/suite" | sort -u | paste -sd';')")}"
        [ "$outcome" = 0 ] || wrong "$device does not conform"
    done
    [ ! -s "$reason" ]
}

# What=, and for which devices. Words and masks are the bench's own, unless the rehearsal sets BENCH.
bench() {
    local what=$1 device
    shift
    for device in "$@"; do
        # shellcheck disable=SC2086  # several arguments
        "$(program aggregation-bench)" json "what=$what" "device=$device" ${BENCH-} 2>&1 | record || wrong "$device failed"
    done
    [ ! -s "$reason" ]
}
# Clock and power while a command runs: what the figures are relative to.
watched() {
    local outcome=0 watcher=
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits -lms 200 >"$work/clocks" 2>/dev/null &
        watcher=$!
    fi
    "$@" || outcome=$?
    [ -z "$watcher" ] || { kill "$watcher" && wait "$watcher"; } 2>/dev/null || true
    [ ! -s "$work/clocks" ] || record "{\"what\":\"clock\",\"mhz\":$(cut -d, -f1 "$work/clocks" | sort -n | tail -n1),\"watts\":$(cut -d, -f2 "$work/clocks" | sort -n | tail -n1)}"
    return $outcome
}
cuda_or_first() { case " $DEVICES " in *' cuda '*) echo cuda ;; *) echo "${DEVICES%% *}" ;; esac; }

section_masks() { watched bench masks cpu "$(cuda_or_first)"; }
section_vulkan() {
    case " $DEVICES " in *' wgpu'*) ;; *) lacks "wgpu is not among the devices: $DEVICES" ;; esac
    local device
    for device in $DEVICES; do
        [ "${device#wgpu}" = "$device" ] || bench masks,robust "$device"
    done
}
section_sums() { bench sums "$(cuda_or_first)"; }
section_robust() { bench robust cpu "$(cuda_or_first)"; }

# A whole federation, by the events of `demo`. Its model's digest is remembered under NAME.
federation() { # name, program, arguments
    local name=$1 program=$2
    shift 2
    mkdir -p "$work/demo"
    "$program" --format json demo --out "$work/demo/$name.safetensors" "$@" >"$work/demo/$name.jsonl" 2>"$work/demo/$name.err" ||
        { tail -n 3 "$work/demo/$name.err" >&2 && wrong "$name failed" && return 0; }
    local digest accuracy
    digest=$(tail -n1 "$work/demo/$name.jsonl" | grep -o '"sha256":"[0-9a-f]*"' | cut -d'"' -f4)
    accuracy=$(tail -n1 "$work/demo/$name.jsonl" | grep -o '"accuracy":[0-9.]*' | head -n1 | cut -d: -f2)
    [ -n "$digest" ] || wrong "$name published no model"
    echo "$digest" >"$work/demo/$name.sha256"
    record "{\"what\":\"demo\",\"name\":\"$name\",\"sha256\":\"$digest\",\"accuracy\":${accuracy:-null},\"seconds\":$(tail -n1 "$work/demo/$name.jsonl" | grep -o '"seconds":[0-9.]*' | tail -n1 | cut -d: -f2),\"unmasked_by\":$(quoted "$(unmasked_by "$name")")}"
}
unmasked_by() { grep -o '"unmask_device":"[^"]*"' "$work/demo/$1.jsonl" | cut -d'"' -f4 | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd';'; }
same() { # two federations
    [ "$(cat "$work/demo/$1.sha256")" = "$(cat "$work/demo/$2.sha256")" ] || wrong "the models of $1 and $2 differ"
}
ROUNDS=(--rounds "${DEMO_ROUNDS:-8}" --drop 0.2 --seed 42)

section_demo() {
    local device tributary
    tributary=$(program tributary)
    TRIBUTARY_AGGREGATION_DEVICE=cpu federation sum-cpu "$tributary" "${ROUNDS[@]}"
    for device in $DEVICES; do
        TRIBUTARY_AGGREGATION_DEVICE=$device federation "sum-$device" "$tributary" "${ROUNDS[@]}"
        same sum-cpu "sum-$device"
        unmasked_by "sum-$device" | grep -q "^[0-9]* x ${device%%:*}[^;]*$" || wrong "not every round was unmasked by $device"
    done
    # Training on the device: other roundings, so another model; how good it is counts.
    if [ -x "$(program tributary-train)" ]; then
        local model=(--data mnist --model "${DEMO_MODEL:-cnn}" --rounds "${DEMO_ROUNDS:-3}" --seed 42)
        federation train-cpu "$(program tributary-train)" "${model[@]}" --device cpu
        federation "train-$TRAINING" "$(program tributary-train)" "${model[@]}" --device "$TRAINING"
    fi
    [ ! -s "$reason" ]
}

# The device is lost for good in the middle of a round: the processor finishes, the model is the same. Then a process that
# holds the device is killed in the middle of its work, and the next one can use it.
section_loss() {
    local tributary bench victim
    tributary=$(program tributary) bench=$(program aggregation-bench)
    case " $DEVICES " in *' cuda '*) ;; *) lacks "cuda is not among the devices: $DEVICES" ;; esac
    TRIBUTARY_AGGREGATION_DEVICE=cpu federation sum-cpu "$tributary" "${ROUNDS[@]}"
    rm -f "$work/fault" "$work/demo/lost.jsonl"
    FAULT_FILE=$work/fault LD_LIBRARY_PATH=$here/lib/fault:$LD_LIBRARY_PATH TRIBUTARY_AGGREGATION_DEVICE=cuda \
        federation lost "$tributary" "${ROUNDS[@]}" &
    victim=$!
    # After two rounds on the device.
    while kill -0 $victim 2>/dev/null && [ "$(cat "$work/demo/lost.jsonl" 2>/dev/null | grep -c '"event":"round"' || true)" -lt 2 ]; do sleep 0.05; done
    touch "$work/fault"
    wait $victim
    same sum-cpu lost
    grep -q 'a kernel that traps was launched, the driver said 0' "$work/demo/lost.err" || wrong "the device was not lost"
    unmasked_by lost | grep -q 'x cuda.*x cpu' || wrong "nothing shows that the processor took over from the device"
    # shellcheck disable=SC2086  # several arguments
    "$bench" json what=masks device=cuda ${LOSS_BENCH-words=10000000 masks=48450} >/dev/null 2>&1 &
    victim=$!
    sleep "${KILL_AFTER:-3}"
    if kill -9 "$victim" 2>/dev/null; then record '{"what":"killed","while":"masks are taken off"}'; else wrong "the bench was over before it was killed"; fi
    wait "$victim" 2>/dev/null || true
    "$bench" json what=masks device=cuda words=1000000 masks=100 | record || wrong "the device cannot be used after that"
    [ ! -s "$reason" ]
}

# A coordinator that holds the device is killed again and again while rounds run; its successors publish the same model.
section_federation() {
    local tributary index token port kills=0 watched
    tributary=$(program tributary) token=
    mkdir -p "$work/f"
    cd "$work/f" || return
    local task=(--participants 10 --rounds "${FEDERATION_ROUNDS:-30}" --seed 7)
    TRIBUTARY_AGGREGATION_DEVICE=cpu federation alone "$tributary" "${task[@]}" --task-file task.toml
    serve() { # listen
        TRIBUTARY_AGGREGATION_DEVICE=$(cuda_or_first) "$tributary" --format json serve --dev --listen "127.0.0.1:$1" --data-dir data >serve.jsonl 2>>serve.log &
        coordinator=$!
        for _ in $(seq 200); do ! grep -q '"serving"' serve.jsonl || return 0; sleep 0.1; done
        tail -n 3 serve.log >&2
        wrong "the coordinator does not serve"
        return 1
    }
    said() { grep '"serving"' serve.jsonl | grep -o "\"$1\":\"[^\"]*\"" | cut -d'"' -f4; }
    serve 0
    port=$(said url | sed 's/.*://')
    TRIBUTARY_SERVER=$(said url) TRIBUTARY_CA=$(said ca) TRIBUTARY_TOKEN=$(said token)
    export TRIBUTARY_SERVER TRIBUTARY_CA TRIBUTARY_TOKEN
    "$tributary" task create task.toml >/dev/null
    for index in 0 1 2 3 4 5 6 7 8 9; do
        token=$("$tributary" --format json token create --enrollment | grep -o '"token":"[^"]*"' | cut -d'"' -f4)
        "$tributary" participant run --participants 10 --seed 7 --index $index --task demo --token "$token" --journal "journal-$index" >/dev/null 2>&1 &
    done
    for _ in 1 2 3; do
        sleep "${KILL_AFTER:-1.5}"
        kill -9 $coordinator && kills=$((kills + 1))
        wait $coordinator 2>/dev/null || true
        serve "$port"
    done
    for _ in $(seq 20); do
        watched=0
        "$tributary" round watch demo >/dev/null 2>watch.err || watched=$?
        [ $watched != 0 ] || break
        sleep 1
    done
    "$tributary" model fetch demo --out fetched.safetensors >/dev/null
    sha256sum fetched.safetensors | cut -d' ' -f1 >"$work/demo/federation.sha256"
    "$tributary" --format json round list demo >"$work/demo/federation.jsonl"
    record "{\"what\":\"federation\",\"kills\":$kills,\"sha256\":\"$(cat "$work/demo/federation.sha256")\",\"unmasked_by\":$(quoted "$(unmasked_by federation)")}"
    kill $coordinator
    same alone federation
    [ ! -s "$reason" ]
}

section_training() {
    [ -x "$(program training-bench)" ] || lacks "training-bench is not in this bundle"
    # shellcheck disable=SC2086  # several arguments
    "$(program training-bench)" "device=$TRAINING" ${TRAINING_BENCH-seconds=0.5} 2>&1 | record
}
section_pytorch() {
    command -v python3 >/dev/null || lacks "no python3"
    local outcome=0
    # shellcheck disable=SC2086  # several arguments
    python3 "$here/torch_training.py" "device=$TRAINING" ${TRAINING_BENCH-seconds=0.5} 2>"$work/torch.err" | record || outcome=${PIPESTATUS[0]}
    cat "$work/torch.err"
    [ "$outcome" != 77 ] || lacks "$(cat "$work/torch.err")"
    return "$outcome"
}

section_sanitizer() {
    command -v compute-sanitizer >/dev/null || lacks "no compute-sanitizer"
    local tool
    for tool in memcheck initcheck racecheck synccheck; do
        compute-sanitizer --tool $tool --error-exitcode 9 "$(program aggregation-bench)" json device=cuda what=masks,robust words=20000 masks=40 >"$work/sanitizer" 2>&1 || wrong "$tool found something"
        cat "$work/sanitizer"
        record "{\"what\":\"sanitizer\",\"tool\":\"$tool\",\"said\":$(quoted "$(grep 'SUMMARY' "$work/sanitizer" | tail -n1)")}"
    done
    [ ! -s "$reason" ]
}

section_ncu() {
    command -v ncu >/dev/null || lacks "no ncu"
    command -v python3 >/dev/null || lacks "no python3, which reads what ncu says"
    local metrics=gpu__time_duration.sum,launch__registers_per_thread,launch__occupancy_limit_registers
    metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,sm__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active,sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active
    metrics+=,smsp__issue_active.avg.pct_of_peak_sustained_active,dram__throughput.avg.pct_of_peak_sustained_elapsed
    # The clocks are left as they are.
    ncu --clock-control none --csv --page raw --metrics $metrics --kernel-name 'regex:^(unmask|trimmed_sum|gram)$' --launch-skip 3 --launch-count 8 \
        "$(program aggregation-bench)" json device=cuda what=masks,robust words=4000000 masks=500 >"$work/ncu" 2>&1
    python3 "$here/ncu.py" <"$work/ncu" | record
    [ -s "$records" ]
}
