#!/usr/bin/env bash
# The dashboard in a real browser, over a real coordinator and real participants: what an operator does from sign-in to sign-out, axe on
# every page in both themes, and a picture of each at 1280 and 390 px. Needs Chromium (Debian's), Node 20 and two packages of npm; what
# cannot be had is SKIPPED, loudly (exit status 77).
#
#   .ci/dashboard.sh BINARY OUT                                       the executable, and the folder for the pictures
#   .ci/dashboard.sh --figures BINARY [ROUNDS, 10000] [SECONDS, 10]   what the page of a task of very many rounds costs, printed
set -euo pipefail
if [ "${1:-}" = --figures ]; then
    binary=$(realpath "${2:?the binary}")
    run=(tests/speed.js "$binary" "${@:3}")
else
    binary=$(realpath "${1:?the binary}")
    mkdir -p "${2:?the folder for pictures}"
    run=(tests/browser.js "$binary" "$(realpath "$2")")
fi
cd "$(dirname "$0")/../dashboard"
limit=300 # KiB, compressed

skipped() {
    echo "SKIPPED: the dashboard in a browser: $*" >&2
    exit 77
}

# What a first visit loads: everything but the encoder of QR codes, which only the enrolment dialog asks for.
weight=0
while IFS= read -r file; do
    weight=$((weight + $(gzip -9 <"$file" | wc -c)))
done < <(find . -path ./tests -prune -o -type f \( -name '*.js' -o -name '*.css' -o -name '*.svg' -o -name '*.html' \) ! -name qrcode.js -print)
echo "page weight: $((weight / 1024)) KiB compressed, of at most $limit"
[ $((weight / 1024)) -le "$limit" ]

has_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! has_chromium >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    timeout 60 apt-get update -qq && timeout 300 apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends chromium fonts-liberation >/dev/null 2>&1 || true
fi
has_chromium >/dev/null 2>&1 || skipped "there is no Chromium"
command -v node >/dev/null && command -v npm >/dev/null || skipped "there is no Node"
timeout 120 npm ci --prefix tests --ignore-scripts --no-audit --no-fund --silent || skipped "npm cannot fetch axe-core and playwright-core"
exec node "${run[@]}"
