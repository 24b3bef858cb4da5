#!/bin/sh
# Makes the keys and passwords that compose.yaml mounts, each in a file for the one user that reads it. Nothing that is there is
# made again: these files are what a backup must hold, apart from that of the database (docs/OPERATIONS.md, "Backup").
#
#   make-secrets.sh FOLDER     as root, since the files get the owners that the images run as
set -eu
folder=${1:?the folder of the secrets, for example deploy/compose/secrets}
umask 077
install -d -m 755 "$folder"
cd "$folder"
tributary=65532 postgres=999 grafana=472

new() { # name, owner: writes standard input to a file of this owner alone, unless it is there
    if [ -e "$1" ]; then cat >/dev/null; return; fi
    cat >"$1.new"
    chown "$2:$2" "$1.new"
    chmod 400 "$1.new"
    mv "$1.new" "$1"
}
password() { openssl rand -hex 24; }

# Seals what opens a round's sum, and the ends of privacy ledgers. All replicas and workers have the same one.
openssl rand 32 | new seal.key "$tributary"
# Certifies participants, and this server to them. With an authority of yours elsewhere it is not needed (docs/OPERATIONS.md).
if [ ! -e ca-key.pem ]; then
    openssl genpkey -algorithm ed25519 -out ca.tmp
    openssl req -x509 -new -key ca.tmp -days 3650 -subj '/CN=Tributary coordinator CA' -out ca.pem \
        -addext 'basicConstraints=critical,CA:TRUE,pathlen:0' -addext 'keyUsage=critical,keyCertSign,cRLSign'
    chmod 444 ca.pem
    new ca-key.pem "$tributary" <ca.tmp
    rm ca.tmp
fi

# The database, over TLS: an authority whose key is forgotten at once certifies one server.
password | new postgres-password "$postgres"
new database-password "$tributary" <postgres-password
if [ ! -e postgres-key.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout database-ca.tmp -days 3650 \
        -subj '/CN=database CA' -addext 'basicConstraints=critical,CA:TRUE' -out database-ca.pem 2>/dev/null
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout postgres.tmp -subj '/CN=postgres' -out postgres.csr 2>/dev/null
    printf 'subjectAltName=DNS:postgres\nextendedKeyUsage=serverAuth\n' >postgres.ext
    openssl x509 -req -in postgres.csr -CA database-ca.pem -CAkey database-ca.tmp -CAcreateserial -days 3650 \
        -extfile postgres.ext -out postgres.pem 2>/dev/null
    chmod 444 database-ca.pem postgres.pem
    new postgres-key.pem "$postgres" <postgres.tmp
    rm -f database-ca.tmp database-ca.srl postgres.tmp postgres.csr postgres.ext
fi

# The store of blobs: what the server reads, and the same as a credentials file of AWS's tools.
printf 'export MINIO_ROOT_USER=tributary\nexport MINIO_ROOT_PASSWORD=%s\n' "$(password)" | new store.env 0
. ./store.env
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$MINIO_ROOT_USER" "$MINIO_ROOT_PASSWORD" |
    new blobs-credentials "$tributary"
password | new grafana-password "$grafana"
