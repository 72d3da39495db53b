#!/bin/sh
# Installs hob @VERSION@ from a folder or a web address that has the files of the release.
#
#   sh install.sh [--from FOLDER_OR_URL] [--to FOLDER]
#
# --from  where the packages and SHA256SUMS are [default: the folder of this script]
# --to    where the program is installed [default: /usr/local/bin for root, else ~/.local/bin]
set -eu

version=@VERSION@

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

from=$(dirname "$0")
if [ "$(id -u)" = 0 ]; then to=/usr/local/bin; else to=${HOME:-.}/.local/bin; fi
while [ $# -gt 0 ]; do
    case "$1" in
    --from) from=${2:?--from needs a folder or a URL} ;;
    --to) to=${2:?--to needs a folder} ;;
    *) fail "unknown option $1; there are --from and --to" ;;
    esac
    shift 2
done

[ "$(uname -s)" = Linux ] || fail "there are packages for Linux only; build from source: cargo build --profile dist"
name=hob-$version-$(uname -m)-linux

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

get() {
    case "$from" in
    https://* | http://*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --output "$folder/$1" "$from/$1"
        else
            wget --quiet --output-document="$folder/$1" "$from/$1"
        fi
        ;;
    *) cp "$from/$1" "$folder/$1" ;;
    esac || fail "cannot get $1 from $from"
}

get SHA256SUMS
grep -- "  $name.tar.gz\$" "$folder/SHA256SUMS" >"$folder/sum" || fail "there is no package for $(uname -m)"
get "$name.tar.gz"
(cd "$folder" && sha256sum --check --status sum) || fail "the checksum of $name.tar.gz is wrong; nothing was installed"

tar -xzf "$folder/$name.tar.gz" -C "$folder"
mkdir -p "$to"
# Renamed into place, so that a running server keeps its program.
cp "$folder/$name/hob" "$to/.hob.new"
chmod 755 "$to/.hob.new"
mv "$to/.hob.new" "$to/hob"
echo "installed $("$to/hob" --version) in $to"
case ":$PATH:" in
*":$to:"*) ;;
*) echo "$to is not in PATH; run: export PATH=\"$to:\$PATH\"" ;;
esac
