#!/usr/bin/env bash
# The OpenAPI document as a contract: it is valid, and a real coordinator with real state keeps to it under thousands of requests that
# schemathesis makes of it, and a client generated from it can be used (client.py). contract.sh BINARY. Ends with 77, and says so, if
# schemathesis cannot be had from PyPI.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

if ! command -v openssl >/dev/null; then
    echo "SKIPPED: there is no openssl, so no participant can be made that the contract is checked with"
    exit 77
fi
if ! ./pypi.sh 300 "$work/venv" schemathesis==4.32.5 openapi-spec-validator==0.9.0 requests==2.34.2 openapi-python-client==0.29.1 >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    echo "SKIPPED: schemathesis and openapi-spec-validator cannot be had from PyPI, so nothing holds the coordinator to its document"
    exit 77
fi

# Real state: a task of two rounds by three participants, and one that waits for participants. Nothing here is limited by rates.
export TRIBUTARY_HTTP_OPERATOR_RATE=100000 TRIBUTARY_HTTP_ADDRESS_RATE=100000 TRIBUTARY_HTTP_PARTICIPANT_RATE=100000
export TRIBUTARY_HTTP_POLL_MAX_MS=100
. ./federation.sh
serve
two_rounds
"$binary" task create "$work/task.toml" --set name=waiting >/dev/null

# A client that knows nothing but the document. What it cannot generate are messages of participants; it warns of them.
curl --silent --fail --cacert "$TRIBUTARY_CA" "$TRIBUTARY_SERVER/openapi.json" >"$work/openapi.json"
cat >"$work/client.yaml" <<'YAML'
content_type_overrides:
  application/vnd.safetensors: application/octet-stream
  application/x-ndjson: application/octet-stream
YAML
"$work/venv/bin/openapi-python-client" generate --path "$work/openapi.json" --meta none --output-path "$work/client" \
    --config "$work/client.yaml" >"$work/generated.log" 2>&1 || { tail -n 20 "$work/generated.log"; exit 1; }
"$work/venv/bin/python" client.py "$work"

if ! "$work/venv/bin/python" contract.py "$work"; then
    grep -iE 'error|panic' "$work/serve.log" | tail -n 20 || true
    exit 1
fi
