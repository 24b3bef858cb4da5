#!/usr/bin/env bash
# `tributary demo --serve` ends with a model that answers its curl line; then `tritonclient[http]` from PyPI asks it unchanged, and
# schemathesis makes thousands of requests of its document, none of which may be a fault. What `tributary model export` writes is computed by ONNX
# Runtime. serving.sh BINARY. Ends with 77, and says so, if the clients cannot be had from PyPI.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

"$binary" --format json demo --rounds 2 --participants 5 --serve >"$work/demo.jsonl" 2>"$work/demo.log" &
for _ in $(seq 1200); do grep -q '"model_served"' "$work/demo.jsonl" && break; sleep 0.1; done
told() { python3 -c 'import json, sys; print(next(e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "model_served")[sys.argv[2]])' "$work/demo.jsonl" "$1"; }
url=$(told url) model=$(told model)
answer=$(bash -c "$(told curl)" 2>/dev/null)
grep -q '"model_version":"2"' <<<"$answer" || { echo "the curl line of the demo was answered: $answer"; exit 1; }
echo "demo --serve: version 2 answers the curl line"

if ! "$here/pypi.sh" 300 "$work/venv" \
    'tritonclient[http]==2.73.0' schemathesis==4.32.5 onnxruntime==1.32.0 protobuf==7.36.2 >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    echo "SKIPPED: tritonclient and schemathesis cannot be had from PyPI, so nobody else asked the model"
    exit 77
fi
"$work/venv/bin/python" "$here/serving_client.py" "$url" "$model" 60
"$work/venv/bin/python" "$here/onnx.py" "$binary" "$work/onnx"

cat >"$work/st.toml" <<TOML
[parameters]
"path.model" = "$model"
"path.version" = "2"
TOML
# Whether what the document allows is accepted is not asked: a schema cannot say that an integer is not written 3.0, nor that a tensor has as many
# elements as its shape says.
requests() { curl -s "$url/metrics" | awk '/^tributary_infer_requests_total/ { all += $2; if (/status="5/) faults += $2 } END { print all + 0, faults + 0 }'; }
# It keeps what failed in the folder that it runs in.
cd "$work"
"$work/venv/bin/st" --config-file "$work/st.toml" run "$url/openapi.json" --seed 19 \
    --generation-deterministic --workers 1 --max-examples 1600 --phases examples,coverage,fuzzing --continue-on-failure \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    --warnings off --no-color >"$work/st.log" 2>&1 || { tail -n 80 "$work/st.log"; exit 1; }
read -r all faults < <(requests)
echo "schemathesis: $all requests for predictions, $faults faults"
[ "$faults" = 0 ] && [ "$all" -ge 3000 ] || { echo "at least 3000 requests, and no fault, were expected"; exit 1; }
