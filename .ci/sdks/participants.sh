# Sourced by ../sdks.sh: participants in each language, and the rounds that they share. Needs $work, $root, $binary, $libraries.

# Prints a field of what a command of the binary prints as JSON: `field data.token token create`.
field() {
    local path=$1
    shift
    "$binary" --format json "$@" | python3 -c '
import json, sys
found = json.loads(sys.stdin.read().splitlines()[-1])
for key in sys.argv[1].split("."):
    found = found[int(key) if key.isdigit() else key]
print(json.dumps(found) if isinstance(found, (dict, list)) else found)' "$path"
}

# Writes the options of a participant: options NAME TASK [MORE AS JSON].
options() {
    local token
    token=$(field data.token token create --enrollment --name "$1")
    python3 - "$work/$1.json" "$TRIBUTARY_SERVER" "$TRIBUTARY_CA" "$token" "$work/journal-$1" "$2" "${3:-{\}}" <<'PYTHON'
import json, sys
path, server, ca, token, journal, task, more = sys.argv[1:]
small = {"min_cohort": 3, "min_tolerated_colluders": 0}
options = {"server": server, "ca_pem": open(ca).read(), "token": token, "journal": journal, "task": task, "secure_aggregation": small}
json.dump({**options, **json.loads(more)}, open(path, "w"))
PYTHON
}

# A task about two tensors, w of shape [2, 3] and b of shape [2]: task NAME ROUNDS COHORT [MORE LINES] [MORE OF ITS TRAINING].
task() {
    cat >"$work/$1.toml" <<TOML
name = "$1"
metrics = ["accuracy"]
[model]
tensors = [{ name = "w", shape = [2, 3], init = "zeros" }, { name = "b", shape = [2], init = "zeros" }]
[training]
learning_rate = 0.05
${5:-}
[rounds]
count = $2
select_max = $3
[selection]
cohort = { count = $3 }
${4:-}
TOML
    "$binary" task create "$work/$1.toml" >/dev/null 2>"$work/$1.log" || { cat "$work/$1.log"; return 1; }
}

# Runs a function with a coordinator and a folder of its own: in_federation FUNCTION ARGUMENTS….
in_federation() {
    (
        work=$(mktemp -d "$work/federation-XXXXXX")
        # A function may have stopped the coordinator itself.
        trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
        serve
        "$@"
    )
}

# Three participants train the example's task: train_in_c PROGRAM. The last round says how good the model is.
train_in_c() {
    local index pids=()
    "$binary" task create "$root/examples/c/task.toml" >/dev/null 2>&1
    for index in 0 1 2; do
        options "c$index" blobs
        "$1" "$work/c$index.json" "$index" >"$work/c$index.log" 2>&1 &
        pids+=($!)
    done
    for index in 0 1 2; do
        wait "${pids[$index]}" && grep -q '^version [1-9]' "$work/c$index.log" || { cat "$work/c$index.log"; return 1; }
    done
    "$binary" --format json round show blobs 3 | python3 -c '
import json, sys
round = json.load(sys.stdin)["data"]
accuracy = round["metrics"]["accuracy"]["value"]
print("C: three rounds, accuracy", accuracy)
assert round["reported"] == 3 and accuracy > 0.8, round'
}

# The example refuses a task that asks for more than it can: refused_in_c PROGRAM.
refused_in_c() {
    local words='this app trains by plain gradient descent alone'
    task steps 1 1 "[secure_aggregation]
enabled = false" 'schedule = { kind = "exponential", factor = 0.9, over = "steps" }'
    options steps steps '{"secure_aggregation": {"required": false}}'
    EVENTS=1 "$1" "$work/steps.json" 1 >"$work/steps.out" 2>&1 &
    for _ in $(seq 600); do
        grep -q "^training_failed .*$words" "$work/steps.out" && return
        sleep 0.1
    done
    cat "$work/steps.out"
    return 1
}

# A task of one participant for a ready model, without secure aggregation: ready_task NAME EPOCHS ROUNDS [METRICS] [MORE LINES] [KIND AND SIZES].
ready_task() {
    local metrics=${4:-'["loss", "accuracy", "train_loss"]'} model=${6:-'kind = "linear", inputs = 4'}
    cat >"$work/$1.toml" <<TOML
name = "$1"
metrics = $metrics
[model]
architecture = { $model, classes = 2 }
[training]
epochs = $2
learning_rate = 0.1
[rounds]
count = $3
[selection]
cohort = { count = 1 }
[aggregation]
clip_range = 8.0
[secure_aggregation]
enabled = false
${5:-}
TOML
    "$binary" task create "$work/$1.toml" >/dev/null 2>"$work/$1.log" || { cat "$work/$1.log"; return 1; }
}

# A device has a model of its own beside the shared one, and both are measured: personal PROGRAM….
personal() {
    # Of so few participants the coordinator tells no accuracy, which comes with its distribution.
    ready_task personal 2 2 '["loss", "personal_loss"]' '[personalization]
method = "ditto"
lambda = 0.5'
    options personal personal '{"secure_aggregation": {"required": false}, "trains_within": true}'
    "$@" "$work/personal.json"
    [ "$(field data.metrics.loss.count round show personal 2)" -gt 0 ] && [ "$(field data.metrics.personal_loss.count round show personal 1)" -gt 0 ] ||
        { "$binary" round show personal 1; "$binary" round show personal 2; return 1; }
}

# A device answers an analysis, whose result is that of its rows: analysis PROGRAM….
analysis() {
    cat >"$work/analysis.toml" <<'TOML'
name = "analysis"
[analytics]
kind = "statistics"
max_rows = 100
columns = [
    { type = "real", name = "age", low = 0, high = 128, edges = [18, 65] },
    { type = "category", name = "group", categories = 2 },
]
[rounds]
count = 1
[selection]
cohort = { count = 1 }
[secure_aggregation]
enabled = false
TOML
    "$binary" task create "$work/analysis.toml" >/dev/null 2>"$work/analysis.log" || { cat "$work/analysis.log"; return 1; }
    options analysis analysis '{"secure_aggregation": {"required": false}, "answers_analyses": true}'
    "$@" "$work/analysis.json"
    "$binary" model fetch analysis --out "$work/analysis-found.json" >/dev/null
    python3 - "$work/analysis-found.json" <<'PYTHON'
import json, sys
found = json.load(open(sys.argv[1]))["statistics"]
age, group = found["columns"][0]["real"], found["columns"][1]["category"]
assert (found["rows"], age["mean"], age["histogram"], group["counts"]) == (3, 50.0, [1, 1, 1], [1, 2]), found
PYTHON
}

# A task of one participant for a graph with three inputs, two rounds long: an imported one of two, whose result is 0 where `known` is false.
graph_task() {
    "$binary" model import "$root/client-sdk/src/train/graph/imported/table.onnx" --loss mse --out "$work/table.graph.json" \
        --weights "$work/table.safetensors" >/dev/null
    python3 - "$work/table.graph.json" <<'PYTHON'
import json, sys
graph = json.load(open(sys.argv[1]))
inputs, batch = len(graph["inputs"]), {"factor": 1, "batch": 1}
later = lambda value: value + (value >= inputs)
graph["inputs"].append({"name": "known", "element": "bool", "shape": [batch]})
for node in graph["nodes"]:
    node["of"] = [later(value) for value in node["of"]]
output, = graph["outputs"]
end = inputs + 1 + len(graph["parameters"]) + len(graph.get("constants", [])) + len(graph["nodes"])
graph["nodes"] += [
    {"do": {"cast": {"to": "f32"}}, "of": [inputs]},
    {"do": {"reshape": {"to": [batch, {"offset": 1}]}}, "of": [end]},
    {"do": {"arithmetic": "mul"}, "of": [later(output["value"]), end + 1]},
]
output["value"] = end + 2
json.dump(graph, open(sys.argv[1], "w"))
PYTHON
    cat >"$work/graph.toml" <<'TOML'
name = "graph"
metrics = ["loss", "train_loss"]
[model]
graph = "table.graph.json"
initial = "table.safetensors"
[model.loss]
kind = "mse"
[training]
epochs = 10
batch_size = 8
learning_rate = 0.05
[rounds]
count = 2
[selection]
cohort = { count = 1 }
[aggregation]
clip_range = 8.0
[secure_aggregation]
enabled = false
TOML
    "$binary" task create "$work/graph.toml" >/dev/null 2>"$work/graph.log" || { cat "$work/graph.log"; return 1; }
}

# An app without a training function takes part alone, and uses the model, also when the coordinator is gone: ready PROGRAM….
ready() {
    local used kind
    ready_task mlp 2 1 "" "" 'kind = "mlp", inputs = 4, hidden = [6]'
    ready_task cnn 1 1 "" "" 'kind = "cnn", height = 4, width = 4'
    for kind in mlp cnn; do
        options "$kind" "$kind" '{"secure_aggregation": {"required": false}}'
        "$@" "$work/$kind.json" "$kind"
        [ "$(field data.metrics.train_loss.value round show "$kind" 1 | cut -c1)" = 0 ] || { "$binary" round show "$kind" 1; return 1; }
    done
    graph_task
    options graph graph '{"secure_aggregation": {"required": false}}'
    "$@" "$work/graph.json" graph
    [ "$(field data.metrics.loss.count round show graph 1)" -gt 0 ] || { "$binary" round show graph 1; return 1; }
    ready_task ready 2 2
    options ready ready '{"secure_aggregation": {"required": false}}'
    used=$("$@" "$work/ready.json")
    [ "$(field data.metrics.train_loss.value round show ready 2 | cut -c1)" = 0 ] || { "$binary" round show ready 2; return 1; }
    # shellcheck disable=SC2046 # one or more
    kill $(jobs -p) && wait
    [ "$("$@" "$work/ready.json" offline)" = "$used" ] || { echo "without the coordinator the model is another one than $used"; return 1; }
    echo "ready: the library trained, and the model was used, also without the coordinator: $used"
}

# An app drives a participant itself: machine PROGRAM….
machine() {
    task driven 2 1 "[secure_aggregation]
enabled = false"
    options driven driven '{"secure_aggregation": {"required": false}, "device_conditions": {}, "training_slice_ms": 10}'
    "$@" "$work/driven.json"
    [ "$(field data.reported round show driven 2)" = 1 ] || { "$binary" round show driven 2; return 1; }
}

# An app drives a participant that trains a ready model for longer than a slice: sliced PROGRAM….
sliced() {
    ready_task sliced 200 1
    options sliced sliced '{"secure_aggregation": {"required": false}, "training_slice_ms": 10}'
    "$@" "$work/sliced.json" sliced
    [ "$(field data.reported round show sliced 1)" = 1 ] || { "$binary" round show sliced 1; return 1; }
}

# From loading the library to its first poll, three times: cold_start PROGRAM. The first time it has no certificate yet, and asks for one.
cold_start() {
    local time
    options cold absent
    for time in 1 2 3; do
        "$1" "$libraries/libtributary_ffi.so" "$work/cold.json"
    done
}

# A careless program takes part in a task of its own: misuse PROGRAM….
misuse() {
    task careless 3 1 "[secure_aggregation]
enabled = false" "weight_decay = 0.01
proximal_mu = 0.5
gradient_clip = 2.0
accumulate = 2
optimizer = { name = \"adamw\", beta2 = 0.99 }
schedule = { kind = \"cosine\", length = 50, over = \"steps\" }
budget = { steps = 9, time_ms = 20000 }"
    options careless careless '{"secure_aggregation": {"required": false}, "max_model_bytes": 1000}'
    options other absent
    "$@" "$work/careless.json" "$work/other.json"
    damaged truncated "it is cut off" "$@"
    damaged newer "update the app" "$@"
    damaged restored "restored from a copy" "$@"
    options capped absent '{"device_conditions": {"charging": false, "unmetered": false, "idle": false, "max_thermal": null, "max_bytes_per_day": 1}}'
    "$@" "$work/capped.json" capped
    in_use "$@"
}

# A journal that another process has: in_use PROGRAM….
in_use() {
    options shared absent
    mkfifo "$work/hold"
    "$@" "$work/shared.json" holds <"$work/hold" >"$work/shared.out" &
    exec 9>"$work/hold"
    for _ in $(seq 600); do
        grep -q started "$work/shared.out" && break
        sleep 0.1
    done
    "$@" "$work/shared.json" damaged "in use"
    exec 9>&-
    wait $!
}

# A key store of the app's own that fails, or does not return, once it has begun: keys PROGRAM….
keys() {
    local name
    task keyed 1 1 "[secure_aggregation]
enabled = false"
    options keyed keyed '{"secure_aggregation": {"required": false}, "checkpoint_every_ms": 0}'
    for name in full stuck slow aside; do
        options "$name" absent
    done
    "$@" "$work/keyed.json" "$work/full.json" "$work/stuck.json" "$work/slow.json" "$work/aside.json"
    [ "$(field data.reported round show keyed 1)" = 1 ] || { "$binary" round show keyed 1; return 1; }
}

# A journal in a state that no participant of this version leaves, and what is said of it: damaged HOW WORDS PROGRAM….
damaged() {
    options "damaged-$1" absent
    "${@:3}" "$work/damaged-$1.json" journal
    python3 - "$1" "$work/journal-damaged-$1" <<'PYTHON'
import pathlib, sys
for record in pathlib.Path(sys.argv[2]).glob("*.record"):
    sealed = record.read_bytes()
    # After 16 bytes comes the version, and what a record must have ends after the 94th.
    match sys.argv[1]:
        case "truncated":
            record.write_bytes(sealed[:60])
        case "newer":
            record.write_bytes(sealed[:16] + bytes([sealed[16] + 1]) + sealed[17:])
        case "restored":  # a copy of before the first record
            record.unlink()
PYTHON
    "${@:3}" "$work/damaged-$1.json" damaged "$2"
}

# Makes the Python package as a wheel would install it, and an interpreter with NumPy.
python_package() {
    command -v python3 >/dev/null && "$root/.ci/pypi.sh" 120 "$work/venv" numpy || return 1
    mkdir "$work/python"
    cp -r "$root/client-sdk/python/tributary" "$work/python/"
    cp "$libraries/lib_tributary.so" "$work/python/tributary/_tributary.abi3.so"
    export PYTHONPATH=$work/python
}

# Makes an interpreter that parses Kotlin and Swift.
has_parsers() {
    command -v python3 >/dev/null && "$root/.ci/pypi.sh" 120 "$work/parsers" tree-sitter==0.26.1 tree-sitter-kotlin==1.1.0 tree-sitter-swift==0.7.4
}

# Whether Kotlin can be compiled and run; sets $kotlin_path. The compiler comes from the package of a notebook kernel;
# TRIBUTARY_KOTLIN_JARS names a folder that has it already.
has_kotlin() {
    command -v java >/dev/null || return 1
    local jars=${TRIBUTARY_KOTLIN_JARS:-$work/wheel/run_kotlin_kernel/jars} jna
    if [ ! -d "$jars" ]; then
        timeout 300 python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" kotlin-jupyter-kernel==0.19.0.944 || return 1
        python3 -m zipfile -e "$work"/kotlin_jupyter_kernel*.whl "$work/wheel" || return 1
    fi
    if [ ! -e /usr/share/java/jna.jar ] && [ "$(id -u)" = 0 ]; then
        { timeout 60 apt-get update -qq && timeout 120 apt-get -o DPkg::Lock::Timeout=100 install -qq -y --no-install-recommends libjna-java; } >/dev/null 2>&1 || true
    fi
    jna=/usr/share/java/jna.jar
    [ -e "$jna" ] || return 1
    kotlin_path=$(printf '%s:' "$jars"/*.jar)$jna
}

# Compiles the bindings, the package and its tests.
compile_kotlin() {
    (cd "$root" && "$libraries/tributary-bindgen" generate -c "$root/client-sdk/ffi/bindings.toml" "$libraries/libtributary_ffi.so" --language kotlin --no-format --out-dir "$work/kotlin/made")
    java -Xmx1500m -cp "$kotlin_path" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler -no-stdlib -no-reflect -nowarn -cp "$kotlin_path" \
        -d "$work/kotlin/classes" "$work/kotlin/made" "$root/client-sdk/kotlin/src/common" "$root/client-sdk/kotlin/tests"
}

# Whether Kotlin for Android can be compiled; sets $android_jar, the API of Android 6, which Debian 11 builds from source.
has_android() {
    local deb=libandroid-23-java_6.0.1+r72-6_all.deb
    command -v javac >/dev/null && command -v dpkg-deb >/dev/null || return 1
    timeout 120 curl --silent --show-error --fail --output "$work/$deb" "http://deb.debian.org/debian/pool/main/a/android-framework-23/$deb" || return 1
    echo "8af1b6df556971dda0a6da3536ea526a838e0c363afcdd454213d8bce94793e3  $work/$deb" | sha256sum --check --quiet || return 1
    dpkg-deb -x "$work/$deb" "$work/android"
    android_jar=$work/android/usr/share/java/com.android.android-23.jar
}

# Compiles what is only Android's, and the example, against that API, and declarations by hand of what is newer or Google's.
compile_android() {
    javac -d "$work/android/newer" "$root"/.ci/sdks/android/android/os/*.java
    java -Xmx1500m -cp "$kotlin_path" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler -no-stdlib -no-reflect -no-jdk -nowarn \
        -cp "$kotlin_path:$work/kotlin/classes:$work/android/newer:$android_jar" -d "$work/android/classes" \
        "$root/.ci/sdks/android/Work.kt" "$root/client-sdk/kotlin/src/android" "$root/examples/android/app/src/main"
}

# Whether Swift can be compiled and run; sets $swift_root, the folder of a Debian 13 that has its compiler. It is made with
# TRIBUTARY_SWIFT=1 (460 MB to fetch, 2.5 GB on the disk); TRIBUTARY_SWIFT_ROOT names one that is there already.
has_swift() {
    swift_root=${TRIBUTARY_SWIFT_ROOT:-$work/swift-root}
    [ ! -x "$swift_root/usr/bin/swiftc" ] || return 0
    [ "${TRIBUTARY_SWIFT:-}" = 1 ] && [ "$(id -u)" = 0 ] || return 1
    command -v debootstrap >/dev/null || apt-get -o DPkg::Lock::Timeout=100 install -qq -y --no-install-recommends debootstrap >/dev/null 2>&1 || return 1
    timeout 1200 debootstrap --variant=minbase --include=swiftlang,libc6-dev,libstdc++-14-dev trixie "$swift_root" >"$work/debootstrap.log" 2>&1
}

# Compiles the bindings, the package without what only Apple's systems have, and its tests, in both modes of the language; sets $in_swift,
# which runs a program with the libraries of that Debian.
compile_swift() {
    local place=$swift_root/tributary lib=$swift_root/usr/lib/x86_64-linux-gnu version
    rm -rf "$place"
    mkdir -p "$place/CTributary"
    (cd "$root" && "$libraries/tributary-bindgen" generate -c client-sdk/ffi/bindings.toml "$libraries/libtributary_ffi.so" --language swift --no-format --out-dir "$place")
    mv "$place/CTributary.h" "$place/CTributary/"
    # The map that is generated names modules of Apple's C library.
    echo 'module CTributary { header "CTributary.h" export * }' >"$place/CTributary/module.modulemap"
    cp "$root"/client-sdk/swift/Sources/Tributary/*.swift "$root"/client-sdk/swift/tests/*.swift "$libraries/libtributary_ffi.so" "$place/"
    for version in 5 6; do
        chroot "$swift_root" sh -c "cd /tributary && swiftc -swift-version $version -warnings-as-errors -parse-as-library -module-name Tributary \
            -I CTributary -L . -ltributary_ffi *.swift -o shift"
    done
    in_swift=("$swift_root/lib64/ld-linux-x86-64.so.2" --library-path "$place:$swift_root/usr/libexec/swift/lib/swift/linux:$lib")
}

# Whether C programs for aarch64 can be linked, by zig, and run, by QEMU.
has_aarch64() {
    command -v cargo-zigbuild >/dev/null && python3 -m ziglang version >/dev/null 2>&1 && command -v qemu-aarch64 >/dev/null && [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ]
}

# Builds the library as apps get it, and C programs with it: aarch64_programs PROFILE FEATURES [RUSTFLAGS]. Sets $in_aarch64, which runs them.
aarch64_programs() {
    local name place=$work/aarch64-$1
    (cd "$root" && unset RUSTC_WORKSPACE_WRAPPER && RUSTFLAGS=${3:-} cargo-zigbuild zigbuild --locked --quiet --target aarch64-unknown-linux-gnu --profile "$1" --package tributary-ffi --lib \
        --no-default-features --features "$2")
    mkdir "$place"
    cp "${CARGO_TARGET_DIR:-$root/target}/aarch64-unknown-linux-gnu/$1/libtributary_ffi.so" "$place/"
    for name in shift misuse machine ready personal; do
        python3 -m ziglang cc -target aarch64-linux-gnu "${flags_of_c[@]}" -o "$place/$name" "$root/client-sdk/ffi/tests/c/$name.c" -L"$place" -ltributary_ffi -lpthread -lm
    done
    in_aarch64=(qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$place")
}

# Runs a program that is killed at one moment after the other, and then lives: killed_at "MOMENT …" PROGRAM….
killed_at() {
    local moment status
    for moment in $1; do
        status=0
        "${@:2}" "$moment" || status=$?
        [ "$status" = 137 ] || { echo "it was not killed at $moment, but ended with $status"; return 1; }
    done
    "${@:2}"
}

# That nobody has sent other bytes for what it had sent before: the coordinator refuses, and counts, what differs.
never_another_answer() {
    local metrics
    metrics=$(curl --silent --show-error --fail --cacert "$TRIBUTARY_CA" -H "Authorization: Bearer $TRIBUTARY_TOKEN" "$TRIBUTARY_SERVER/metrics") || return 1
    grep -q '^tributary_request' <<<"$metrics" || { echo "no metrics came"; return 1; }
    if grep 'tributary_rejections_total{code="different' <<<"$metrics"; then
        echo "somebody gave another answer to a question that it had answered"
        return 1
    fi
}

# Four participants add 0.1, 0.2, 0.3 and 0.4 in a task without noise and in one with: rounds MOMENTS PROGRAM PROGRAM PROGRAM PROGRAM, each
# program the name of an array with a command. Without noise, all but Rust's are killed at each of the moments, the steps of a round.
# Prints the digest of the model without noise.
rounds() {
    local index pids name round moments=$1
    shift
    task exact 2 4 "[aggregation]
clip_range = 8.0"
    # The noise is small beside the update: what is looked at is that everybody is in the sum, and charged for it.
    task private 1 4 '[privacy]
mechanism = "distributed_discrete_gaussian"
epsilon = 400.0
delta = 1e-5
noise_multiplier = 0.2
clip = { fixed = 2.0 }'
    for name in exact private; do
        pids=()
        for index in 0 1 2 3; do
            local -n program=${*:$((index + 1)):1}
            local at=$moments
            [ "$name" = exact ] && [ "${*:$((index + 1)):1}" != shift_in_rust ] || at=
            options "$name$index" "$name" "{\"seed\": $((index + 7)), \"checkpoint_every_ms\": 0, \"privacy\": {\"max_epsilon\": 500.0, \"lifetime\": {\"epsilon\": 500.0}}}"
            # The others would wait for one that fails.
            { killed_at "$at" "${program[@]}" "$work/$name$index.json" "0.$((index + 1))" || { pkill -f "$work/$name[0-3].json"; false; }; } \
                >"$work/$name$index.out" 2>"$work/$name$index.log" &
            pids+=($!)
        done
        for index in 0 1 2 3; do
            wait "${pids[$index]}" || { tail -n 20 "$work/$name"[0-3].{out,log} >&2; return 1; }
        done
    done
    for round in "exact 1" "exact 2" "private 1"; do
        # shellcheck disable=SC2086 # a task and a number
        [ "$(field data.reported round show $round)" = 4 ] || { "$binary" round show $round >&2; return 1; }
    done
    never_another_answer >&2 || return 1
    for index in 0 1 2 3; do
        [ -z "$moments" ] || [ "${*:$((index + 1)):1}" = shift_in_rust ] || grep -q 'goes on from its checkpoint' "$work/exact$index.log" ||
            { echo "it began again:" >&2; cat "$work/exact$index.log" >&2; return 1; }
        grep -q '"private"' "$work/private$index.out" || { cat "$work/private$index.out" >&2; return 1; }
    done
    "$binary" model fetch exact --out "$work/exact.safetensors" >/dev/null
    "$binary" model fetch private --out "$work/private.safetensors" >/dev/null
    python3 "$root/.ci/sdks/mean.py" "$work/exact.safetensors" 0.5 0.0001 >&2 || return 1
    python3 "$root/.ci/sdks/mean.py" "$work/private.safetensors" 0.25 0.6 >&2 || return 1
    sha256sum <"$work/exact.safetensors"
}

# The same rounds, and the commands around them, through an HTTP proxy that alone resolves the coordinator's name and wants a password:
# behind_proxy MOMENTS PROGRAM PROGRAM PROGRAM PROGRAM. The coordinator has a certificate for that name.
behind_proxy() {
    local port=${TRIBUTARY_SERVER##*:} proxy
    python3 "$root/.ci/sdks/proxy.py" "$port" "$work/proxy" >"$work/tunnels" &
    proxy=$!
    until [ -s "$work/proxy" ]; do kill -0 "$proxy" || return 1; sleep 0.1; done
    export TRIBUTARY_SERVER=https://fl.site.test:$port HTTPS_PROXY=http://ward:s3cret@$(<"$work/proxy")
    rounds "$@" || return 1
    # curl is among those who asked it.
    kill -0 "$proxy" && [ "$(wc -l <"$work/tunnels")" -gt 8 ] || { cat "$work/tunnels" >&2; return 1; }
}

# The steps of a round at which a participant is killed.
steps="enrolled invited assigned shared fetched delivered middle trained answered uploaded confirmed unmasked"

# Languages that cannot be had are stood in for by C. The four in C do the same and nobody kills them. In a third federation the programs drive
# the participants themselves. With Kotlin there is a fourth, where a participant sends with the HTTP client of its JVM in the place of the
# library's HTTPS.
same_bits() {
    local third=shift_in_python fourth=shift_in_kotlin mixed alike driven swift aarch64 proxied lent
    [ ${#shift_in_python[@]} -gt 0 ] || third=shift_in_c
    [ ${#shift_in_kotlin[@]} -gt 0 ] || fourth=shift_in_c
    mixed=$(in_federation rounds "$steps" shift_in_rust shift_in_c $third $fourth)
    alike=$(in_federation rounds "" shift_in_c shift_in_c shift_in_c shift_in_c)
    [ "$mixed" = "$alike" ] || { echo "the models differ: $mixed, $alike"; return 1; }
    echo "the same bits: Rust, C, ${third#shift_in_} and ${fourth#shift_in_}, all but Rust killed and started again at ${steps// /, }, published what four in C do whom nobody kills: $mixed"
    driven=$(in_federation rounds "assigned middle answered uploaded" shift_in_rust shift_in_c_driven ${third}_driven ${fourth}_driven)
    [ "$driven" = "$alike" ] || { echo "driven by their programs they published another model: $driven, $alike"; return 1; }
    echo "the same bits: so did Rust, C, ${third#shift_in_} and ${fourth#shift_in_}, driven by the programs themselves and killed at four steps"
    if [ ${#shift_in_swift[@]} -gt 0 ]; then
        swift=$(in_federation rounds "$steps" shift_in_rust shift_in_c $fourth shift_in_swift)
        [ "$swift" = "$alike" ] || { echo "with Swift the model differs: $swift, $alike"; return 1; }
        driven=$(in_federation rounds "assigned middle answered uploaded" shift_in_rust shift_in_c shift_in_swift shift_in_swift_driven)
        [ "$driven" = "$alike" ] || { echo "driven by Swift the model differs: $driven, $alike"; return 1; }
        echo "the same bits: so did Rust, C, ${fourth#shift_in_} and Swift, killed at every step, and Swift that drives a participant"
    fi
    if [ ${#shift_in_aarch64[@]} -gt 0 ]; then
        aarch64=$(in_federation rounds "$steps" shift_in_rust shift_in_c shift_in_aarch64 shift_in_aarch64)
        [ "$aarch64" = "$alike" ] || { echo "on aarch64 the model differs: $aarch64, $alike"; return 1; }
        echo "the same bits: so did Rust, C, and two in C on aarch64, killed at every step"
    fi
    for swift in "$fourth" ${shift_in_swift[0]:+shift_in_swift}; do
        proxied=$(TRIBUTARY_HTTP_PUBLIC_NAMES='["localhost", "fl.site.test"]' in_federation behind_proxy "enrolled middle uploaded" shift_in_rust shift_in_c $third "$swift")
        [ "$proxied" = "$alike" ] || { echo "through a proxy the model differs: $proxied, $alike"; return 1; }
        echo "the same bits: so did Rust, C, ${third#shift_in_} and ${swift#shift_in_} through an HTTP proxy"
    done
    [ ${#shift_in_kotlin_lent[@]} -gt 0 ] || return 0
    lent=$(in_federation rounds "enrolled middle uploaded" shift_in_rust shift_in_c shift_in_kotlin shift_in_kotlin_lent)
    [ "$lent" = "$alike" ] || { echo "over the app's own HTTP client the model differs: $lent, $alike"; return 1; }
    echo "the same bits: so did Rust, C, Kotlin and Kotlin over the JVM's own HTTP client"
}
