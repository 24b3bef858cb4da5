#!/usr/bin/env bash
# Runs what of Tributary needs a GPU, on a machine that has one, and prints one JSON object: what was run, how it ended, figures.
#
#   run.sh [SECTION…]    sections.sh has them, in the order of their worth; without arguments all, in at most 15 minutes
#
# A section has a time limit and a status of its own, so one that fails, hangs or lacks something costs nothing of the others:
# ok, failed, timed out, not run (with the reason). Needs bash, coreutils, and xz or python3; python3, PyTorch, compute-sanitizer and ncu are
# used where they are. With OUT=FOLDER the JSON goes to FOLDER/gpu.json and all output to FOLDER/gpu.log as well. Called with
# some of the sections at a time, keep each JSON: fill.py takes any number. Settings, which the rehearsal makes small:
#   TOTAL_S=900        seconds for everything
#   DEVICES="cuda wgpu"    devices of sums that are compared with the processor; TRAINING=cuda    where to train
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export here DEVICES=${DEVICES-cuda wgpu} TRAINING=${TRAINING-cuda}

work=${WORK:-$(mktemp -d)}
[ -n "${WORK-}" ] || trap 'rm -rf "$work"' EXIT
log=$work/gpu.log
: >"$log"
export work

# shellcheck source=gpu/sections.sh
. "$here/sections.sh"
wanted=("$@")
[ $# -gt 0 ] || wanted=("${SECTIONS[@]%%:*}")
for name in "${wanted[@]}"; do
    [[ " ${SECTIONS[*]%%:*} " == *" $name "* ]] || { echo "run.sh: there is no section $name, but ${SECTIONS[*]%%:*}" >&2 && exit 2; }
done

unpack >>"$log" 2>&1
surroundings >>"$log" 2>&1
deadline=$((SECONDS + ${TOTAL_S:-900})) began=$SECONDS bad=0 body=
for name in "${wanted[@]}"; do
    for entry in "${SECTIONS[@]}"; do [ "${entry%%:*}" != "$name" ] || limit=${entry#*:}; done
    left=$((deadline - SECONDS))
    [ "$limit" -le "$left" ] || limit=$left
    export records=$work/$name.records reason=$work/$name.reason
    : >"$records" && : >"$reason"
    start=$SECONDS status=ok code=0
    if [ "$limit" -lt 5 ]; then
        status="not run" && echo "the time for all sections was used up" >"$reason"
    else
        printf '\n=== %s\n' "$name" >>"$log"
        # In a session of its own, so that nothing that it started outlives its limit.
        setsid --wait timeout --kill-after=5 "$limit" bash -c ". '$here/sections.sh'; run $name" >"$work/$name.log" 2>&1 || code=$?
        cat "$work/$name.log" >>"$log"
        case $code in
            0) ;;
            77) status="not run" ;;
            124 | 137) status="timed out" bad=1 && echo "$limit s were not enough" >"$reason" ;;
            *) status=failed bad=1 && [ -s "$reason" ] || echo "status $code" >"$reason" ;;
        esac
    fi
    printf '%-12s %-10s %4d s  %s\n' "$name" "$status" $((SECONDS - start)) "$(cat "$reason")" >&2
    body+=${body:+,}"$(quoted "$name"):{\"status\":$(quoted "$status"),\"seconds\":$((SECONDS - start)),\"limit_s\":$limit"
    [ "$status" = ok ] || body+=",\"reason\":$(quoted "$(cat "$reason")"),\"log\":$(quoted "$(tail -n 15 "$work/$name.log" 2>/dev/null | cut -c1-400)")"
    body+=",\"results\":[$(paste -sd, "$records")]}"
done

json="{\"date\":\"$(date -u +%Y-%m-%dT%H:%MZ)\",\"bundle\":$(cat "$here/bundle.json"),\"command\":$(quoted "run.sh $*"),\"seconds\":$((SECONDS - began)),\"sections\":{$body}}"
if [ -n "${OUT-}" ]; then
    printf '%s\n' "$json" >"$OUT/gpu.json"
    cp "$log" "$OUT/gpu.log"
fi
printf '%s\n' "$json"
exit $bad
