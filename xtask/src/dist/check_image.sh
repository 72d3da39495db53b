# Checks the layout of an image, and runs it as a container. As root.
#   check_image.sh IMAGE VERSION
set -eu
folder=$(mktemp -d)
name=hob-check-$$
end() {
    runc delete --force "$name" 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

skopeo inspect "oci-archive:$1" >"$folder/oci.json"
skopeo inspect "docker-archive:$1" >"$folder/docker.json"
mkdir "$folder/layout"
tar -xf "$1" -C "$folder/layout"
umoci unpack --image "$folder/layout:$2" "$folder/bundle" >/dev/null

cd "$folder/bundle"
# The command of the image, with a token in its environment and no terminal. The container has its own network.
python3 - <<'PYTHON'
import json
import secrets

with open("config.json") as file:
    config = json.load(file)
process = config["process"]
assert process["user"]["uid"] == 65532, process["user"]
assert process["args"] == ["/usr/bin/hob", "serve"], process["args"]
process["terminal"] = False
process["env"].append("HOB_ADMIN_TOKEN=" + secrets.token_hex(24))
process["capabilities"] = {}
process["noNewPrivileges"] = True
config["root"]["readonly"] = True
config["linux"]["resources"] = {}
config["mounts"].append({
    "destination": "/var/lib/hob",
    "type": "tmpfs",
    "source": "tmpfs",
    "options": ["uid=65532", "gid=65532", "mode=0700"],
})
with open("config.json", "w") as file:
    json.dump(config, file)
PYTHON
runc run --detach "$name" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
# The health check of the image.
until runc exec "$name" /usr/bin/hob uptime check http://127.0.0.1:7070/healthz >/dev/null 2>&1; do
    tries=$((${tries:-0} + 1))
    [ "$tries" -lt 300 ] || { cat "$folder/log" >&2; exit 1; }
    sleep 0.2
done
process=$(runc state "$name" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
[ "$(stat -c %u "/proc/$process")" = 65532 ] || { echo "the process does not run as its user" >&2; exit 1; }
runc kill "$name" TERM
echo "the image runs as user 65532 with a read-only root"
