# Sourced by scripts that check what other tools make of a federation: a coordinator in $work, from the program $binary.

# Starts the coordinator, waits until it serves, and exports TRIBUTARY_SERVER, TRIBUTARY_CA and TRIBUTARY_TOKEN.
serve() {
    "$binary" --format json serve --dev --listen 127.0.0.1:0 --data-dir "$work/data" >"$work/serve.jsonl" 2>"$work/serve.log" &
    for _ in $(seq 600); do
        [ -n "$(said url)" ] && break
        sleep 0.1
    done
    TRIBUTARY_SERVER=$(said url) TRIBUTARY_CA=$(said ca) TRIBUTARY_TOKEN=$(said token)
    export TRIBUTARY_SERVER TRIBUTARY_CA TRIBUTARY_TOKEN
}

# A field of the event that says that it serves; nothing before that.
said() {
    python3 - "$1" "$work/serve.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[2]):
    event = json.loads(line)
    if event["event"] == "serving":
        print(event[sys.argv[1]])
PYTHON
}

# A task of this name, by default `demo`, with two rounds by three participants, as `tributary demo` makes it with these flags; returns
# once they are over.
two_rounds() {
    local name=${1:-demo} index token
    "$binary" demo --participants 3 --rounds 2 --seed 5 "${@:2}" --task-file "$work/task.toml" >/dev/null
    "$binary" task create "$work/task.toml" --set "name=$name" >/dev/null
    for index in 0 1 2; do
        token=$("$binary" --format json token create --enrollment | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"]["token"])')
        "$binary" participant run --participants 3 --seed 5 --index "$index" --name "$name-$index" --task "$name" --token "$token" \
            --min-cohort 3 --min-tolerated-colluders 0 --lifetime-epsilon 100 --journal "$work/journal-$name-$index" >/dev/null 2>&1 &
    done
    "$binary" round watch "$name" >/dev/null
}
