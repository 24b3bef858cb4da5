#!/usr/bin/env bash
# Holds deploy/ against what it promises: the systemd unit, the Containerfile and its steps, the chart, the compose file, alerts and dashboard.
# Needs root on Debian (a bare root folder is made and mounted), Debian's packages and PyPI; a tool that cannot be had is SKIPPED,
# loudly, with what was not checked, and then this ends with 77.
#
#   .ci/deploy.sh BINARY    the release binary, which the bare root must run
set -euo pipefail
binary=$(realpath "${1:?the binary}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
skipped() {
    echo "SKIPPED: $*"
    status=77
}
# Tests repeat noise by this variable; whoever ships an executable that knows it ships one whose noise can be taken off.
if grep -q TRIBUTARY_NOISE_SEED "$binary"; then
    echo "$binary has the feature deliberate-faults" >&2
    exit 1
fi

# Tools of Python, in an environment of their own; a wheel that is not the pinned one is a failure.
python=
if command -v python3 >/dev/null && python3 -m venv "$work/venv"; then
    if "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary=:all: -r deploy/checks/requirements.txt 2>"$work/pip.log"; then
        python=$work/venv/bin/python
    elif grep -q 'DO NOT MATCH THE HASHES' "$work/pip.log"; then
        cat "$work/pip.log" >&2
        exit 1
    fi
fi

# Two folders of extracted Debian packages: the image's root, and tools to run in it by chroot. Nothing is installed here.
debian() { # folder, packages
    mmdebstrap --quiet --variant=extract --include="$2" bookworm "$1" http://deb.debian.org/debian
}
roots=
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && unshare --mount --pid --fork true; then
    command -v mmdebstrap >/dev/null ||
        { timeout 60 apt-get update -qq && timeout 60 apt-get install -qq -y --no-install-recommends mmdebstrap; } >/dev/null 2>&1 || true
    # What distroless/cc-debian12 consists of.
    if command -v mmdebstrap >/dev/null &&
        debian "$work/root" base-files,ca-certificates,libc6,libgcc-s1,libgomp1,libssl3,libstdc++6,netbase,tzdata &&
        debian "$work/tools" base-files,docker-compose,haproxy,prometheus; then
        roots=yes
    fi
fi
tool() { chroot "$work/tools" "$@"; }

python3 deploy/checks/unit.py "$binary"
mkdir "$work/configs"
cp docs/config/coordinator.toml "$work/configs/documented.toml"
cp deploy/compose/coordinator.toml "$work/configs/compose.toml"
if [ -n "$python" ]; then
    "$work/venv/bin/hadolint" --failure-threshold info deploy/Containerfile gpu/Containerfile
    "$work/venv/bin/shellcheck" --external-sources gpu/*.sh .ci/gpu.sh
    echo "hadolint: the Containerfiles of deploy/ and gpu/ are in order; shellcheck: the scripts of gpu/"
    "$python" deploy/checks/chart.py "$work/configs"
    "$python" deploy/checks/serving.py "$binary"
    "$python" deploy/checks/names.py "$work/dashboard.yaml"
else
    skipped "PyPI's wheels of deploy/checks/requirements.txt cannot be had, so the Containerfiles, gpu/'s scripts, the chart and deploy/serving were not checked," \
        "nor whether the metrics and log lines that alerts, dashboard and docs name exist"
fi

if [ -n "$roots" ]; then
    files=deploy/helm/tributary/files
    mkdir "$work/tools/checked"
    cp "$files/alerts.yaml" deploy/compose/prometheus.yml deploy/checks/alerts.test.yaml "$work/tools/checked"
    tool promtool check config /checked/prometheus.yml
    tool promtool test rules /checked/alerts.test.yaml
    if [ -n "$python" ]; then
        cp "$work/dashboard.yaml" "$work/tools/checked"
        tool promtool check rules /checked/dashboard.yaml
        mkdir "$work/tools/deploy"
        cp -r deploy/compose deploy/helm "$work/tools/deploy"
        digest=sha256:$(printf '0%.0s' {1..64})
        digests=(TRIBUTARY_IMAGE="example/tributary@$digest")
        for image in $(grep -o '^[A-Z]*_DIGEST' deploy/compose/env.example); do digests+=("$image=$digest"); done
        env "${digests[@]}" chroot "$work/tools" docker-compose -f /deploy/compose/compose.yaml config >"$work/composed.yaml"
        bash deploy/compose/make-secrets.sh "$work/secrets" >/dev/null 2>&1
        "$python" deploy/checks/compose.py "$work/composed.yaml" "$work/secrets"
        region=(REGION_UPSTREAM=https://global.example:8443 REGION_TASK=digits REGION_NAME=north)
        env "${digests[@]}" "${region[@]}" chroot "$work/tools" docker-compose -f /deploy/compose/compose.yaml -f /deploy/compose/region.yaml config >"$work/region.yaml"
        (umask 077 && for name in upstream-ca.pem region-token operator-token; do : >"$work/secrets/$name"; done)
        "$python" deploy/checks/compose.py "$work/region.yaml" "$work/secrets"
        if env "${digests[@]:1}" chroot "$work/tools" docker-compose -f /deploy/compose/compose.yaml config >/dev/null 2>&1; then
            echo "compose.yaml starts from an image that nobody has chosen" >&2
            exit 1
        fi
    fi
    # Configurations that need what this build does not know yet are refused by it, and cannot be checked with it.
    configs=()
    for config in "$work"/configs/*.toml; do
        for kind in database=postgres://user@host/name blobs=s3://bucket/prefix; do
            printf '[%s]\nurl = "%s"\n' "${kind%%=*}" "${kind#*=}" >"$work/probe.toml"
            scheme=${kind#*=} scheme=${scheme%%:*}
            said=$("$binary" check-config --config "$work/probe.toml" 2>&1) || true
            if grep -q "url = \"$scheme://" "$config" && [[ $said == *'this build knows'* ]]; then
                skipped "this build knows no $scheme:// yet, so it was not asked about the configuration $(basename "$config" .toml)"
                continue 2
            fi
        done
        configs+=("$config")
    done
    deploy/checks/image.sh "$binary" "$work/root" "$work/tools" "${configs[@]}"
else
    skipped "this is not root on Debian with the right to mount, or mmdebstrap or Debian's packages cannot be had: what the image installs was not run, and" \
        "compose file, balancer, alerts and dashboard were not given to docker-compose, haproxy and promtool"
fi
exit "$status"
