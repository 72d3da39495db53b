# Starts the program of a tarball for another kind of machine in an emulator, and reads the Debian package.
#   check_emulated.sh EMULATOR TARBALL PACKAGE ARCHITECTURE
set -eu
emulator=$1
root=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait; rm -rf "$root"' EXIT

[ "$(dpkg-deb --field "$3" Architecture)" = "$4" ] || { echo "the package is not for $4" >&2; exit 1; }
mkdir "$root/package"
dpkg-deb --extract "$3" "$root/package"
tar -xzf "$2" -C "$root"
hob=$(echo "$root"/hob-*/hob)
cmp "$hob" "$root/package/usr/bin/hob"
"$emulator" "$hob" version

HOB_DATABASE_URL=$root/hob.db HOB_REDIS_EMBEDDED_LISTEN=127.0.0.1:0 HOB_DATA_DIR=$root \
    "$emulator" "$hob" serve --listen 127.0.0.1:17071 >"$root/log" 2>&1 &
server=$!
end=$(($(date +%s) + 120))
until "$emulator" "$hob" uptime check http://127.0.0.1:17071/readyz >/dev/null 2>&1; do
    kill -0 "$server" && [ "$(date +%s)" -lt "$end" ] || { cat "$root/log" >&2; exit 1; }
    sleep 0.2
done
echo "ready, in $emulator"
kill "$server"
wait "$server"
server=
