# Sourced by silo.sh and python.sh, with $root: sets $torch_python, an interpreter that may have PyTorch. It is this machine's, or with
# TRIBUTARY_TORCH=1 that of an environment beside the build, into which the first of the two scripts fetches PyTorch (5 GB).
torch_python=python3
if [ -n "${TRIBUTARY_TORCH:-}" ]; then
    torch_home=${CARGO_TARGET_DIR:-$root/target}/torch
    if [ ! -e "$torch_home/complete" ]; then
        rm -rf "$torch_home"
        if "$root/.ci/pypi.sh" 900 "$torch_home" torch onnx onnxscript numpy safetensors scikit-learn peft accelerate; then
            touch "$torch_home/complete"
        else
            echo "SKIPPED: PyTorch cannot be had from PyPI, so nothing was tried with it"
        fi
    fi
    [ ! -e "$torch_home/complete" ] || torch_python=$torch_home/bin/python
fi
