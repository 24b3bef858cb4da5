#!/usr/bin/env bash
# Compiles a crate of ours by clippy-driver, as cargo's RUSTC_WORKSPACE_WRAPPER. Keeps how libraries and executables were compiled in the
# folder $CI_COMPILED, for `cargo xtask rustdoc`: `cargo doc` would check every crate of others once more.
set -euo pipefail
if [ -n "${CI_COMPILED:-}" ]; then
    name='' kind=other previous=''
    for argument; do
        case $previous:$argument in
        --crate-name:*) name=$argument ;;
        --crate-type:bin) kind=bin ;;
        --crate-type:proc-macro) kind=other ;;
        --crate-type:*) kind=lib ;;
        *:--test) kind=test ;;
        esac
        previous=$argument
    done
    case $kind:$name in
    lib:___ | *:build_script_*) ;;
    lib:* | bin:*)
        mkdir -p "$CI_COMPILED"
        env -0 | { grep -z -E '^(CARGO_[A-Z_]*|OUT_DIR)=' || true; } >"$CI_COMPILED/$kind-$name.variables"
        printf '%s\0' "$@" >"$CI_COMPILED/$kind-$name.arguments"
        ;;
    esac
fi
exec clippy-driver "$@"
