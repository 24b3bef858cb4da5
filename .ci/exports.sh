#!/usr/bin/env bash
# What `tributary export` writes is opened by the tools it is for: pyarrow, TensorBoard and MLflow, from PyPI.
# exports.sh BINARY. Ends with 77, and says so, if they cannot be had.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

if ! { python3 -m venv "$work/venv" && timeout 300 "$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    --only-binary=:all: pyarrow==26.0.1 tensorboard==2.21.0 mlflow-skinny==3.17.2; } >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    echo "SKIPPED: pyarrow, tensorboard and mlflow-skinny cannot be had from PyPI, so no other tool has opened an export"
    exit 77
fi

# A real federation: a coordinator and three participants, two rounds.
"$binary" demo --participants 3 --rounds 2 --seed 5 --task-file "$work/task.toml" >/dev/null
"$binary" --format json serve --dev --listen 127.0.0.1:0 --data-dir "$work/data" >"$work/serve.jsonl" 2>/dev/null &
said() { # key of the event that says that it serves
    python3 - "$1" "$work/serve.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[2]):
    event = json.loads(line)
    if event["event"] == "serving":
        print(event[sys.argv[1]])
PYTHON
}
for _ in $(seq 100); do
    [ -n "$(said url)" ] && break
    sleep 0.1
done
TRIBUTARY_SERVER=$(said url) TRIBUTARY_CA=$(said ca) TRIBUTARY_TOKEN=$(said token)
export TRIBUTARY_SERVER TRIBUTARY_CA TRIBUTARY_TOKEN
"$binary" task create "$work/task.toml" >/dev/null
for index in 0 1 2; do
    token=$("$binary" --format json token create --enrollment | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"]["token"])')
    "$binary" participant run --participants 3 --seed 5 --index "$index" --task demo --token "$token" \
        --min-cohort 3 --min-tolerated-colluders 0 --journal "$work/journal-$index" >/dev/null 2>&1 &
done
"$binary" round watch demo >/dev/null

"$binary" --format json round list demo >"$work/rounds.json"
"$binary" export demo --as csv --out "$work/rounds.csv"
"$binary" export demo --as parquet --out "$work/rounds.parquet"
"$binary" export demo --as tensorboard --out "$work/tensorboard"
"$binary" export demo --as mlflow --out "$work/mlflow"
"$work/venv/bin/python" exports.py "$work"
