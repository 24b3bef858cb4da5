#!/usr/bin/env bash
# The SDKs for C, Kotlin and Python beside the one for Rust, against a real coordinator. sdks.sh BINARY [LIBRARIES].
#
# 1. C: the example trains a model, and a careless program is told what it does wrong; plain and under sanitizers.
# 2. Kotlin: the bindings and the package are compiled and tried on a JVM; what is for Android alone is compiled. All of Kotlin and Swift is
#    parsed, since what is for Apple alone is not compiled.
# 3. Swift: the bindings and what of the package is not only Apple's are compiled, its options are tried, and it takes part in the rounds of 5.
# 4. aarch64: the libraries as apps get them, in both profiles, under QEMU.
# 5. The same bits: rounds with a participant in each language, killed at each step of a round and in the middle of its training, publish
#    the model that four in C publish whom nobody kills, byte for byte; and so do rounds in which the programs drive the participants
#    themselves, and in which one sends with the HTTP client of its JVM.
#
# LIBRARIES is a folder with libtributary_ffi, lib_tributary.so, tributary-bindgen and examples/shift; by default they are built. C
# always runs. What else cannot be had is named in a line that begins with SKIPPED, and then this ends with 77.
set -euo pipefail
binary=$(realpath "${1:?the binary}")
root=$(realpath "$(dirname "$0")/..")
libraries=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=0
skip() {
    echo "SKIPPED: $*"
    skipped=77
}

if [ -z "$libraries" ]; then
    # As the tests build them, so that nothing is built twice.
    (cd "$root" && cargo build --workspace --bins --lib --example shift)
    libraries=${CARGO_TARGET_DIR:-$root/target}/debug
fi
libraries=$(realpath "$libraries")
. "$root/.ci/federation.sh"
. "$root/.ci/sdks/participants.sh"

# ---- 1. C

header=$root/client-sdk/ffi/include
flags_of_c=(-std=c11 -D_DEFAULT_SOURCE -Wall -Wextra -Werror -g -I"$header")
native=("$libraries/libtributary_ffi.a" -lpthread -ldl -lm)

# A name, and the flags of a sanitizer: the example trains, and the careless program is told.
try_c() {
    local name=$1
    shift
    gcc "${flags_of_c[@]}" "$@" -o "$work/train" "$root/examples/c/train.c" "${native[@]}"
    gcc "${flags_of_c[@]}" "$@" -o "$work/misuse" "$root/client-sdk/ffi/tests/c/misuse.c" "${native[@]}"
    gcc "${flags_of_c[@]}" "$@" -o "$work/machine" "$root/client-sdk/ffi/tests/c/machine.c" "${native[@]}"
    gcc "${flags_of_c[@]}" "$@" -o "$work/ready" "$root/client-sdk/ffi/tests/c/ready.c" "${native[@]}"
    gcc "${flags_of_c[@]}" "$@" -o "$work/personal" "$root/client-sdk/ffi/tests/c/personal.c" "${native[@]}"
    gcc "${flags_of_c[@]}" "$@" -o "$work/analysis" "$root/client-sdk/ffi/tests/c/analysis.c" "${native[@]}"
    gcc "${flags_of_c[@]}" "$@" -o "$work/keys" "$root/client-sdk/ffi/tests/c/keys.c" "${native[@]}"
    in_federation train_in_c "$work/train"
    in_federation refused_in_c "$work/train"
    in_federation ready "$work/ready"
    in_federation personal "$work/personal"
    in_federation analysis "$work/analysis"
    in_federation machine "$work/machine"
    in_federation sliced "$work/machine"
    in_federation misuse "$work/misuse"
    in_federation keys "$work/keys"
    echo "C, $name: the example learnt, and refused what it cannot, a ready model was trained and used, a device had its own, an analysis was answered, a participant was driven, and misuse and broken callbacks were told"
}

gcc "${flags_of_c[@]}" -o "$work/shift-c" "$root/client-sdk/ffi/tests/c/shift.c" "${native[@]}"
echo '#include "tributary.h"' | g++ -x c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I"$header" -
make --silent -C "$root/examples/c" LIBRARY="$libraries" train && rm "$root/examples/c/train"
try_c plain
try_c "address and undefined behaviour" -fsanitize=address,undefined -fno-sanitize-recover=all
# The library is not instrumented, so this sees what the C programs share between their threads and the callbacks.
echo 'called_from_lib:libtributary_ffi.so' >"$work/suppressions"
export TSAN_OPTIONS=suppressions=$work/suppressions
native=(-L"$libraries" -Wl,-rpath,"$libraries" -ltributary_ffi -lpthread -lm)
try_c "threads" -fsanitize=thread

gcc "${flags_of_c[@]}" -o "$work/cold_start" "$root/client-sdk/ffi/tests/c/cold_start.c" -ldl
echo "C, cold start:"
in_federation cold_start "$work/cold_start"

# ---- 2. Kotlin

shift_in_rust=("$libraries/examples/shift")
shift_in_c=("$work/shift-c")
shift_in_c_driven=(env TRIBUTARY_DRIVEN=1 "${shift_in_c[@]}")
shift_in_python=() shift_in_python_driven=() shift_in_kotlin=() shift_in_kotlin_driven=() shift_in_kotlin_lent=()
# What does not compile fails, and is not skipped.
if has_kotlin; then
    compile_kotlin
    # Each process lives for seconds: the second compiler of a JVM would cost more than it saves.
    jvm=(java -ea -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$work/kotlin/classes:$kotlin_path" -Djna.library.path="$libraries")
    "${jvm[@]}" org.tributary.tests.OptionsKt "$root/client-sdk/ffi/tests/options.json" "$work/options-kotlin"
    in_federation misuse "${jvm[@]}" org.tributary.tests.MisuseKt
    in_federation machine "${jvm[@]}" org.tributary.tests.DrivenKt
    in_federation sliced "${jvm[@]}" org.tributary.tests.DrivenKt
    in_federation ready "${jvm[@]}" org.tributary.tests.ReadyKt
    in_federation personal "${jvm[@]}" org.tributary.tests.PersonalKt
    in_federation analysis "${jvm[@]}" org.tributary.tests.AnalysisKt
    in_federation keys "${jvm[@]}" org.tributary.tests.KeysKt
    shift_in_kotlin=("${jvm[@]}" org.tributary.tests.ShiftKt)
    shift_in_kotlin_driven=("${jvm[@]}" -Dtributary.driven=yes org.tributary.tests.ShiftKt)
    shift_in_kotlin_lent=("${jvm[@]}" -Dtributary.client=lent org.tributary.tests.ShiftKt)
    if has_android; then
        compile_android
        echo "Kotlin: the package and the example for Android compile"
    else
        skip "javac or the API of Android 6 (libandroid-23-java of Debian 11) cannot be had, so nothing was compiled for Android"
    fi
else
    skip "a JVM, the Kotlin compiler (kotlin-jupyter-kernel from PyPI) or JNA (libjna-java) cannot be had, so no Kotlin was compiled or run"
fi
if has_parsers; then
    (cd "$root" && find client-sdk/kotlin client-sdk/swift examples/android examples/ios -name build -prune -o \
        \( -name '*.kt' -o -name '*.kts' -o -name '*.swift' \) -print0 | xargs -0 "$work/parsers/bin/python" .ci/sdks/parse.py)
else
    skip "tree-sitter-kotlin and tree-sitter-swift cannot be had from PyPI, so the Kotlin and Swift for Android and Apple were not parsed"
fi
if python_package; then
    shift_in_python=("$work/venv/bin/python" "$root/client-sdk/python/tests/shift.py")
    shift_in_python_driven=(env TRIBUTARY_DRIVEN=1 "${shift_in_python[@]}")
else
    skip "numpy cannot be had from PyPI, so Python took no part in the rounds of all languages"
fi

# ---- 3. Swift

shift_in_swift=() shift_in_swift_driven=()
if has_swift; then
    compile_swift
    shift_in_swift=("${in_swift[@]}" "$swift_root/tributary/shift")
    shift_in_swift_driven=(env TRIBUTARY_DRIVEN=1 "${shift_in_swift[@]}")
    "${shift_in_swift[@]}" options "$root/client-sdk/ffi/tests/options.json" "$work/options-swift"
else
    skip "a Debian with Swift is 2.5 GB and not made without TRIBUTARY_SWIFT=1, so no Swift was compiled or run"
fi

# ---- 4. aarch64

shift_in_aarch64=()
if has_aarch64; then
    # The smallest, as `cargo xtask size` builds it.
    aarch64_programs mobile-abort https -Cforce-unwind-tables=no
    in_federation machine "${in_aarch64[@]}" "$work/aarch64-mobile-abort/machine"
    aarch64_programs mobile https,models
    in_federation misuse "${in_aarch64[@]}" "$work/aarch64-mobile/misuse"
    in_federation ready "${in_aarch64[@]}" "$work/aarch64-mobile/ready"
    shift_in_aarch64=("${in_aarch64[@]}" "$work/aarch64-mobile/shift")
else
    skip "zig (cargo-zigbuild, ziglang), QEMU (qemu-user) or the C library (libc6-arm64-cross) is absent, so nothing ran on aarch64"
fi

# ---- 5. The same bits

same_bits
exit "$skipped"
