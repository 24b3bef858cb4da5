#!/usr/bin/env bash
# Installs packages of PyPI, wheels only, into an environment, which is created if it is missing: pypi.sh SECONDS ENVIRONMENT PACKAGE…
# It runs uv, kept in the target folder, which takes a seventh of pip's time, and pip if uv fails.
set -euo pipefail
seconds=${1:?seconds} environment=${2:?an environment}
shift 2
home=$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../target}")/uv
[ -e "$environment/bin/python" ] || python3 -m venv "$environment"
pip=(timeout "$seconds" "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all:)
if [ ! -x "$home/bin/uv" ]; then
    new=$(mktemp -d)
    trap 'rm -rf "$new"' EXIT
    # Another script may do the same.
    ! "${pip[@]}" --target "$new/uv" uv==0.13.9 || { mkdir -p "$(dirname "$home")" && mv -T "$new/uv" "$home" 2>/dev/null; } || true
fi
export UV_CACHE_DIR=$home-cache UV_INDEX_URL=${UV_INDEX_URL:-${PIP_INDEX_URL:-https://pypi.org/simple}} UV_FIND_LINKS=${PIP_FIND_LINKS:-}
timeout "$seconds" "$home/bin/uv" pip install --quiet --python "$environment/bin/python" --only-binary :all: "$@" || "${pip[@]}" "$@"
