#!/usr/bin/env bash
# The examples for silos: each parallel one against one process, silos of several processes in rounds, and those without PyTorch.
# silo.sh BINARY. Ends with 77, and says so, where PyTorch is absent (TRIBUTARY_TORCH=1 fetches it, 5 GB: `.ci/run` does where the
# examples, the process trainer or program.py have changed).
set -euo pipefail
binary=$(realpath "${1:?the binary}")
root=$(realpath "$(dirname "$0")/..")
tests=$root/examples/silo/tests
. "$root/.ci/torch.sh"
python=$torch_python
# What program.py does alone is tested with the SDK for Python (python.sh).
"$python" "$tests/others.py"
TRIBUTARY_BINARY=$binary "$python" "$tests/kills.py"
"$python" "$tests/equality.py"
"$python" "$tests/adapter.py"
"$python" "$tests/checkpoints.py" 2
TRIBUTARY_BINARY=$binary "$python" "$tests/exact.py"
TRIBUTARY_BINARY=$binary "$python" "$tests/scaling.py"
