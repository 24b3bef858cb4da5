#!/bin/sh
# Puts what the image holds into the folder ROOT: the executable, its licence, the documented configuration, and the folders of
# its data and of its cache. deploy/Containerfile runs it, and so does deploy/checks/image.sh, which shows that what it installs runs.
#
#   install.sh ROOT           builds the executable first, from the sources around this script
#   install.sh ROOT BINARY    takes one that was built
set -eu
root=${1:?the folder to install into}
source=$(cd "$(dirname "$0")/../.." && pwd)
# No account of a host has this id; distroless images call it `nonroot`.
user=65532

binary=${2-}
if [ -z "$binary" ]; then
    # The program says of which commit it is, in records that it signs. Of sources with changes there is none.
    if [ -z "${TRIBUTARY_COMMIT-}" ] && [ -z "$(git -C "$source" status --porcelain 2>&1)" ]; then
        TRIBUTARY_COMMIT=$(git -C "$source" rev-parse HEAD)
    fi
    export TRIBUTARY_COMMIT="${TRIBUTARY_COMMIT-}"
    # The same packages as in .ci/run, so the same features of what they share: the image holds what was tested.
    (cd "$source" && cargo build --locked --release --workspace --bin tributary)
    binary=${CARGO_TARGET_DIR:-$source/target}/release/tributary
fi

install -d -m 755 "$root/usr/local/bin" "$root/usr/local/share/doc/tributary"
install -m 755 "$binary" "$root/usr/local/bin/tributary"
install -m 644 "$source/LICENSE" "$source/docs/config/coordinator.toml" "$root/usr/local/share/doc/tributary"
install -d -m 700 -o "$user" -g "$user" "$root/var/lib/tributary" "$root/var/cache/tributary"
