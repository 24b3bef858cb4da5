#!/usr/bin/env bash
# What `tributary export` writes is opened by the tools it is for: pyarrow, TensorBoard and MLflow, from PyPI; and a privacy ledger is
# verified with Google's dp-accounting.
# exports.sh BINARY. Ends with 77, and says so, if they cannot be had.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

if ! ./pypi.sh 300 "$work/venv" pyarrow==26.0.1 tensorboard==2.21.0 mlflow-skinny==3.17.2 sqlalchemy alembic dp-accounting==0.6.0 cryptography >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    echo "SKIPPED: pyarrow, tensorboard, mlflow-skinny or dp-accounting cannot be had from PyPI, so no other tool has opened an export"
    exit 77
fi

. ./federation.sh
serve
two_rounds
two_rounds private --privacy epsilon=8,delta=1e-5
two_rounds personal --personalize fine_tune

tasks=(demo private personal)
for task in "${tasks[@]}"; do "$binary" --format json round list "$task" >"$work/$task.json"; done
"$binary" export "${tasks[@]}" --as csv --out "$work/rounds.csv"
"$binary" export "${tasks[@]}" --as parquet --out "$work/rounds.parquet"
"$binary" export "${tasks[@]}" --as tensorboard --out "$work/tensorboard"
"$binary" export "${tasks[@]}" --as mlflow --out "$work/mlflow"
# As docs/API.md says: into a database, which MLflow opens without a word about files.
"$work/venv/bin/mlflow" migrate-filestore --source "$work/mlflow" --target "sqlite:///$work/mlflow.db"
"$work/venv/bin/python" exports.py "$work" "${tasks[@]}"

"$binary" privacy export private "$work/ledger.json"
key=$("$binary" --format json audit head | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"]["key"])')
"$binary" privacy verify "$work/ledger.json" --key "$key"
"$work/venv/bin/python" ../examples/privacy/verify_ledger.py "$work/ledger.json" "$key"
sed 's/attempt\\":1/attempt\\":2/' "$work/ledger.json" >"$work/changed.json"
grep -q 'attempt\\":2' "$work/changed.json"
for check in "$binary privacy verify" "$work/venv/bin/python ../examples/privacy/verify_ledger.py"; do
    # shellcheck disable=SC2086 # a program and its arguments
    if $check "$work/changed.json"; then
        echo "an edited ledger passed" >&2
        exit 1
    fi
done
