#!/usr/bin/env bash
# Makes what Package.swift needs, on a Mac with Xcode: the library for devices, the simulator and macOS, and the Swift that calls it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
targets=(aarch64-apple-ios aarch64-apple-ios-sim aarch64-apple-darwin)
rustup target add "${targets[@]}"
target=${CARGO_TARGET_DIR:-target}
for name in "${targets[@]}"; do
    cargo build --locked --profile mobile --package tributary-ffi --target "$name"
done
# The small libraries are stripped of the descriptions that the bindings are made from.
cargo build --locked --package tributary-ffi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cargo run --locked --package tributary-bindgen -- generate -c client-sdk/ffi/bindings.toml --language swift --no-format \
    --out-dir "$made" "$target/debug/libtributary_ffi.dylib"
mv "$made/Tributary.swift" "$here/Sources/Tributary/"
mkdir "$made/headers"
mv "$made/CTributary.h" "$made/headers/"
mv "$made/CTributary.modulemap" "$made/headers/module.modulemap"
rm -rf "$here/CTributary.xcframework"
libraries=()
for name in "${targets[@]}"; do
    libraries+=(-library "$target/$name/mobile/libtributary_ffi.a" -headers "$made/headers")
done
xcodebuild -create-xcframework "${libraries[@]}" -output "$here/CTributary.xcframework"
