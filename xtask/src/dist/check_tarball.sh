# Installs TARBALL's program with install.sh and runs it in a root folder that has nothing else. As root.
#   check_tarball.sh FOLDER_OF_THE_RELEASE
set -eu
release=$1
root=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait; rm -rf "$root"' EXIT

sh "$release/install.sh" --from "$release" --to "$root"
# A changed package is not installed.
broken=$root/broken
mkdir "$broken"
cp "$release/SHA256SUMS" "$broken"
for package in "$release"/hob-*.tar.gz; do
    (cat "$package"; echo) >"$broken/$(basename "$package")"
done
if sh "$release/install.sh" --from "$broken" --to "$broken/bin" 2>"$broken/error"; then
    echo "a package with a wrong checksum was installed" >&2
    exit 1
fi
grep -q "checksum" "$broken/error"
test ! -e "$broken/bin"
rm -rf "$broken"

mkdir "$root/tmp" "$root/data"
begun=$(date +%s%N)
HOB_DATABASE_URL=/data/hob.db HOB_REDIS_EMBEDDED_LISTEN=127.0.0.1:0 \
    chroot "$root" /hob serve --listen 127.0.0.1:17070 >"$root/log" 2>&1 &
server=$!
ready() {
    "$root/hob" uptime check http://127.0.0.1:17070/readyz >/dev/null 2>&1
}
until ready; do
    kill -0 "$server" || { cat "$root/log" >&2; exit 1; }
    [ $(($(date +%s%N) - begun)) -lt 60000000000 ] || { cat "$root/log" >&2; exit 1; }
    sleep 0.02
done
echo "ready $((($(date +%s%N) - begun) / 1000000)) ms after the start, in an empty root"
kill "$server"
wait "$server"
server=
