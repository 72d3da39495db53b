# Unpacks the Valkey server of this Debian release, or of its backports, into the folder "$1". Nothing is installed, and no
# rights are needed: apt-get gets its own lists and cache.
set -eu
folder=$1
. /etc/os-release

mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
    sed -n "s/ $VERSION_CODENAME\$//p" | head -n 1)
if [ -z "$mirror" ]; then
    echo "apt-get has no package lists of Debian $VERSION_CODENAME; run: apt-get update" >&2
    exit 1
fi

mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/bin"
cd "$folder"
for suite in "$VERSION_CODENAME" "$VERSION_CODENAME-backports"; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >apt/sources.list

apt() {
    apt-get -q -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
apt download valkey-server valkey-tools
for package in valkey-*.deb; do
    dpkg-deb --extract "$package" .
done
rm -r apt valkey-*.deb
# The tests start programs by the names that Redis has.
ln -s ../usr/bin/valkey-server bin/redis-server
