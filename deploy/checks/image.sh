#!/usr/bin/env bash
# Shows that what deploy/image/install.sh installs runs where the image runs it: on a root of just the Debian packages that
# distroless/cc consists of (no shell), mounted read-only, as user 65532, with keys mounted as Kubernetes mounts Secrets
# (files of root that the process's group may read). Root is needed for the mounts.
#
#   image.sh BINARY ROOT HAPROXY CONFIGS…
#     ROOT      the folder with those packages; is written to
#     HAPROXY   a folder with Debian's haproxy, put in front of the coordinator as in deploy/compose
#     CONFIGS   configuration files that the program must accept
set -euo pipefail
binary=$1 root=$2 haproxy=$3
shift 3
deploy=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
if [ "${IN_NAMESPACE-}" != 1 ]; then # every mount below ends with these processes
    exec env IN_NAMESPACE=1 unshare --mount --mount-proc --pid --fork --kill-child --propagation private "$0" "$binary" "$root" "$haproxy" "$@"
fi
trap 'rm -rf "$work"' EXIT
fail() { echo "image: $*" >&2; cat "$work/serve.log" >&2 2>/dev/null || true; exit 1; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

"$deploy/image/install.sh" "$root" "$binary"
for shell in bin/sh bin/bash bin/dash usr/bin/apt-get usr/bin/dpkg; do
    [ ! -e "$root/$shell" ] || fail "the root has $shell: it is not the image's"
done

# As a user of the image, with nothing but it.
inside=(chroot --userspec=65532:65532 --groups= "$root" /usr/local/bin/tributary)
mkdir -p "$root/etc/tributary" "$root/configs" "$root/run/secrets/tributary"
bash "$deploy/compose/make-secrets.sh" "$work/secrets" >/dev/null 2>&1
for key in seal.key ca-key.pem ca.pem; do
    install -o 0 -g 65532 -m 440 "$work/secrets/$key" "$root/run/secrets/tributary/$key"
done
port=$(free_port) health=$(free_port) front=$(free_port)
cat >"$root/etc/tributary/coordinator.toml" <<TOML
[http]
listen = "127.0.0.1:$port"
health_listen = "127.0.0.1:$health"
public_names = ["localhost"]
[database]
url = "sqlite:/var/lib/tributary/coordinator.db"
[blobs]
url = "file:/var/lib/tributary/blobs"
[identity]
ca_certificate_file = "/run/secrets/tributary/ca.pem"
ca_key_file = "/run/secrets/tributary/ca-key.pem"
seal_key_file = "/var/lib/tributary/seal.key"
TOML
cp "$@" "$root/configs"
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o uid=65532,gid=65532,mode=700 tmpfs "$root/var/lib/tributary"
: >"$root/var/lib/tributary/seal.key"
mount --bind "$root/run/secrets/tributary/seal.key" "$root/var/lib/tributary/seal.key"
mount -o remount,bind,ro "$root/var/lib/tributary/seal.key"
! touch "$root/written" 2>/dev/null || fail "the root can be written"

"${inside[@]}" --version
for config in "$@"; do
    "${inside[@]}" check-config --config "/configs/$(basename "$config")" >"$work/checked" 2>&1 || fail "$(basename "$config"): $(cat "$work/checked")"
    echo "accepted: $(basename "$config")"
done

"${inside[@]}" serve --config /etc/tributary/coordinator.toml >"$work/serve.out" 2>"$work/serve.log" &
served=$!
answer() { curl --silent --show-error --max-time 5 "$@" 2>&1; }
for _ in $(seq 100); do
    [ "$(answer "http://127.0.0.1:$health/healthz")" != ok ] || break
    kill -0 "$served" 2>/dev/null || fail "serve ended"
    sleep 0.1
done
[ "$(answer "http://127.0.0.1:$health/healthz")" = ok ] || fail "/healthz did not answer"
[ "$(answer "http://127.0.0.1:$health/readyz")" = ready ] || fail "/readyz: $(answer "http://127.0.0.1:$health/readyz")"
answer "http://127.0.0.1:$health/metrics" >"$work/metrics"
grep -q '^tributary_faults_total 0' "$work/metrics" || fail "/metrics has no tributary_faults_total"
uid=$(awk '/^Uid:/ { print $2 }' "/proc/$served/status")
[ "$uid" = 65532 ] || fail "it runs as user $uid"
echo "healthy: as user $uid on a read-only root"

# The balancer of deploy/compose, with its file as it is but for addresses: TLS goes through it, /readyz decides.
sed -e 's/maxconn .*/maxconn 100/' -e "s/bind \*:8443/bind 127.0.0.1:$front/" -e "s/tributary-[12]:8443/127.0.0.1:$port/" -e "s/port 8444/port $health/" \
    -e '/ server /s/ resolvers docker//' "$deploy/compose/haproxy.cfg" >"$haproxy/haproxy.cfg"
chroot "$haproxy" haproxy -q -c -f /haproxy.cfg || fail "haproxy refuses its file"
mount -t proc proc "$haproxy/proc" && mount --bind /dev "$haproxy/dev"
chroot "$haproxy" haproxy -f /haproxy.cfg >"$work/haproxy.log" 2>&1 &
balanced=$!
through() { answer --cacert "$work/secrets/ca.pem" "https://localhost:$front/healthz"; }
for _ in $(seq 100); do
    [ "$(through)" != ok ] || break
    sleep 0.1
done
[ "$(through)" = ok ] || fail "not through the balancer: $(through); $(cat "$work/haproxy.log")"
echo "served: through the balancer, under the coordinator's own certificate"
kill "$balanced"

kill -TERM "$served"
wait "$served" || fail "it did not end well"
echo "ended: at SIGTERM, with status 0"
