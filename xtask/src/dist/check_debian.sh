# Installs, starts, upgrades and purges a package in a Debian system that systemd boots in a container. As root.
#   check_debian.sh TAR_OF_A_DEBIAN_ROOT PACKAGE NEWER_PACKAGE
set -eu
folder=$(mktemp -d)
root=$folder/root
container=
init=
end() {
    [ -z "$init" ] || kill -KILL "$init" 2>/dev/null || true
    [ -z "$container" ] || wait "$container" 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

mkdir "$root"
tar -xf "$1" -C "$root"
cp "$2" "$root/hob.deb"
cp "$3" "$root/newer.deb"

# The host needs no D-Bus, and the container has its own network, so that every port is free.
systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --private-network --console=pipe \
    >"$folder/console" 2>&1 &
container=$!

fail() {
    echo "$1" >&2
    cat "$folder/console" >&2
    inside journalctl --no-pager --unit hob | tail -40 >&2 || true
    exit 1
}
inside() {
    nsenter --target "$init" --all --wdns=/ "$@"
}
# until_true SECONDS COMMAND…
until_true() {
    end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || fail "not within its time: $*"
        sleep 0.2
    done
}
booted() {
    init=$(pgrep -P "$container" | head -1) && inside systemctl is-system-running | grep -q -e running -e degraded
}
healthy() {
    inside hob uptime check http://127.0.0.1:7070/readyz
}
until_true 120 booted

echo "install"
inside dpkg --install /hob.deb
until_true 60 healthy
inside systemctl is-active --quiet hob || fail "the unit is not active"
inside systemctl is-enabled --quiet hob || fail "the unit is not enabled"
[ "$(inside stat -c '%U %a' /var/lib/hob)" = "hob 700" ] || fail "the data folder is open to others"
[ "$(inside stat -c '%U %a' /etc/hob/environment)" = "root 600" ] || fail "the admin token can be read by others"
process=$(inside systemctl show --value --property MainPID hob)
[ "$(inside stat -c %U "/proc/$process")" = hob ] || fail "the server does not run as its user"
inside sh -c "ls /usr/share/man/man1/hob-serve.1.gz /usr/share/bash-completion/completions/hob" >/dev/null

echo "unit"
inside systemd-analyze verify --man=no /lib/systemd/system/hob.service || fail "systemd-analyze verify"
# --threshold takes ten times the exposure.
inside systemd-analyze security --no-pager --threshold=29 hob.service >"$folder/security" || {
    cat "$folder/security" >&2
    fail "the exposure is 3 or more"
}
tail -1 "$folder/security"

echo "upgrade"
echo "# changed by the administrator" | inside tee -a /etc/hob/hob.toml >/dev/null
token=$(inside cat /etc/hob/environment)
inside touch /var/lib/hob/kept
inside dpkg --install /newer.deb
until_true 60 healthy
inside grep -q "changed by the administrator" /etc/hob/hob.toml || fail "the settings were replaced"
[ "$token" = "$(inside cat /etc/hob/environment)" ] || fail "the admin token was replaced"
inside test -e /var/lib/hob/kept -a -e /var/lib/hob/hob.db || fail "the data was deleted"

echo "remove and purge"
inside dpkg --remove hob
inside test -e /var/lib/hob/hob.db -a -e /etc/hob/hob.toml || fail "the data was deleted before a purge"
inside dpkg --purge hob
for path in /var/lib/hob /etc/hob /usr/bin/hob /lib/systemd/system/hob.service; do
    inside test ! -e "$path" || fail "a purge leaves $path"
done
inside sh -c '! getent passwd hob' >/dev/null || fail "a purge leaves the user"
inside sh -c '! systemctl is-active --quiet hob' || fail "a purge leaves the server"
