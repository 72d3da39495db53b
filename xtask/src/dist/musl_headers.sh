# Unpacks Debian's musl-dev for another kind of machine, without changes to the packages of this one.
#   musl_headers.sh ARCHITECTURE FOLDER
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# apt-get downloads as its own user.
chmod 755 "$folder"
mkdir -p "$folder/lists/partial" "$folder/archives/partial"
touch "$folder/status"

# apt_get ARGUMENTS…
apt_get() {
    apt-get -q -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o Dir::State::lists="$folder/lists" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder" "$@"
}
architecture=$1
apt_get update
(cd "$folder" && apt_get download "musl-dev:$architecture")
mkdir -p "$(dirname "$2")"
rm -rf "$2.partial"
dpkg-deb --extract "$folder"/musl-dev_*.deb "$2.partial"
mv "$2.partial" "$2"
