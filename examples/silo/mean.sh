#!/bin/sh
# Plain shell: moves the number `mean` by gradient steps to the mean of this site's numbers, one a line.
#
#   tributary participant run … --trainer 'sh examples/silo/mean.sh numbers.txt' --trainer-dir jobs
#
# The task's model: { name = "mean", shape = [], init = "zeros" }. `$job/job.json` says more; no language is special.
set -eu
job=$TRIBUTARY_JOB numbers=$1
grep -q '"kind": "train"' "$job/job.json" || exit 75
# It follows epochs and learning_rate. A task's other settings are absent, null or 0 at their usual values.
for key in accumulate adaptive_mu gradient_clip momentum optimizer precision proximal_mu schedule solver steps warmup weight_decay; do
    if sed -n '/^  "plan": {/,/^  }/p' "$job/job.json" | grep "^    \"$key\":" | grep -Evq ': (null|0|0\.0),?$'; then
        echo "this program does not follow training.$key" >"$job/draft"
        mv "$job/draft" "$job/refused"
        exit 75
    fi
done

setting() { # name: a number of the plan
    sed -n "s/.*\"$1\": \([0-9.e-]*\),*/\1/p" "$job/job.json" | head -n 1
}

# The file ends with the number, 32 bits.
old=$(tail -c 4 "$job/model.safetensors" | od -An -t f4)
new=$(awk -v m="$old" -v rate="$(setting learning_rate)" -v steps="$(setting epochs)" \
    '{ sum += $1 } END { for (i = 0; i < steps; i++) m -= rate * (m - sum / NR); printf "%.9g", m }' "$numbers")
loss=$(awk -v m="$new" '{ sum += ($1 - m) ^ 2 } END { print sum / NR }' "$numbers")

# The number as IEEE 754 has it, lowest byte first, for printf.
bytes=$(awk -v v="$new" 'BEGIN {
    sign = v < 0; if (sign) v = -v
    if (v == 0) { print "\\000\\000\\000\\000"; exit }
    while (v >= 2) { v /= 2; e++ }
    while (v < 1) { v *= 2; e-- }
    f = int((v - 1) * 8388608 + 0.5); if (f == 8388608) { f = 0; e++ }
    bits = ((sign * 256) + e + 127) * 8388608 + f
    for (i = 0; i < 4; i++) { printf "\\%03o", bits % 256; bits = int(bits / 256) }
}')
{ head -c -4 "$job/model.safetensors"; printf "$bytes"; } >"$job/draft"
mv "$job/draft" "$job/trained.safetensors"
printf '{"examples": %s, "metrics": {"train_loss": %s}}' "$(wc -l <"$numbers")" "$loss" >"$job/draft"
mv "$job/draft" "$job/result.json"
