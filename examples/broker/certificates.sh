#!/bin/sh
# Certificates for the broker and its clients, with openssl and nothing else.
#
#   sh certificates.sh ca                      the authority; needs an empty or no certs/
#   BROKER=broker.example sh certificates.sh server
#   sh certificates.sh device-a operator       a client each; its name is its user name in the file "acl"
#
# Keys are on the curve P-256, not encrypted, readable for their owner alone. Certificates live a year (DAYS=365), the
# authority ten. Who has certs/ca.key can be anybody: keep it off the broker.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p certs
broker=${BROKER:-localhost}
days=${DAYS:-365}

key() {
    [ ! -e "certs/$1.key" ] || { echo "certs/$1.key is there already; remove it first" >&2; exit 1; }
    openssl ecparam -name prime256v1 -genkey -noout -out "certs/$1.key"
}

issue() { # name, extensions
    key "$1"
    printf '%s\n' "$2" "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" > "certs/$1.ext"
    openssl req -new -key "certs/$1.key" -subj "/CN=$1" -out "certs/$1.csr"
    openssl x509 -req -in "certs/$1.csr" -CA certs/ca.pem -CAkey certs/ca.key -set_serial "0x$(openssl rand -hex 16)" \
        -days "$days" -extfile "certs/$1.ext" -out "certs/$1.pem" 2> /dev/null
    rm "certs/$1.csr" "certs/$1.ext"
    chmod 644 "certs/$1.pem"
    echo "certs/$1.pem"
}

for name in "$@"; do
    case $name in
    ca)
        key ca
        openssl req -x509 -new -key certs/ca.key -subj "/CN=edge-runtime example authority" -days 3650 -out certs/ca.pem \
            -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
        chmod 644 certs/ca.pem
        echo certs/ca.pem
        ;;
    server)
        case $broker in
        *[!0-9.]*) issue server "subjectAltName=DNS:$broker
extendedKeyUsage=serverAuth" ;;
        *) issue server "subjectAltName=IP:$broker
extendedKeyUsage=serverAuth" ;;
        esac
        ;;
    "" | *[!A-Za-z0-9._-]* | -*)
        echo "$name: use letters, digits, dot, dash and underscore" >&2
        exit 1
        ;;
    *) issue "$name" "extendedKeyUsage=clientAuth" ;;
    esac
done
