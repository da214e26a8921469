#!/bin/sh
# Runs in a Debian with cloud-init and Ansible under systemd: what deploys the package to machines does so.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
export ANSIBLE_ROLES_PATH=/check/deploy/ansible/roles HOME=/root LC_ALL=C.UTF-8

# What a release's address serves.
deb=${name}_$(dpkg-deb --field first.deb Version)_$(dpkg --print-architecture).deb
sum=$(sha256sum first.deb | cut -d ' ' -f 1)
mkdir release
cp first.deb "release/$deb"
systemd-run --unit release python3 -m http.server --bind 127.0.0.1 --directory /check/release 8000

# Custom data: valid, and its commands install the package, here from loopback.
cloud-init schema --config-file deploy/cloud-init/$name.yml
python3 - "$sum" <<'EOF'
import pathlib, re, sys, yaml
data = yaml.safe_load(open("/check/deploy/cloud-init/azure-scheduled-events-exporter.yml"))
(file,) = data["write_files"]
path = pathlib.Path(file["path"])
path.parent.mkdir()
path.write_text(file["content"])
(command,) = data["runcmd"]
text = re.sub("from=.*", "from=http://127.0.0.1:8000", command[2]).replace("0" * 64, sys.argv[1])
pathlib.Path("/check/install").write_text(text)
EOF
sh -x /check/install </dev/null
systemctl is-active $name
grep 'resources: true' /etc/$name/exporter.yml
dpkg --purge $name

# Ansible, from the wheels beside it: what check mode says changes nothing, also on a fresh machine; then it is installed and
# configured, there is nothing to do the second time, and a mistake changes nothing and is named.
python3 -m venv ansible
ansible/bin/pip install --quiet --no-index --find-links wheels ansible-core
ansible/bin/ansible --version
play() {
    variables=$1
    shift
    ansible/bin/ansible-playbook --inventory localhost, --connection local deploy/ansible/playbook.yml \
        --extra-vars azure_scheduled_events_exporter_url=http://127.0.0.1:8000 \
        --extra-vars "{\"azure_scheduled_events_exporter_checksums\": {\"amd64\": \"$sum\", \"arm64\": \"$sum\"}}" \
        --extra-vars "$variables" "$@" >played 2>&1 || { status=$?; cat played; return $status; }
    cat played
}
wrong=$(printf '%064d' 0)
good='{"azure_scheduled_events_exporter_config": {"notifications": {"targets": [{"name": "a", "url": "${A_URL}"}]}},
    "azure_scheduled_events_exporter_environment": {"A_URL": "json://localhost/it'"'"'s"}}'
if play "{\"azure_scheduled_events_exporter_checksums\": {\"amd64\": \"$wrong\", \"arm64\": \"$wrong\"}}"; then exit 1; fi
play "$good" --check --diff
test ! -e /etc/$name
test ! -e /var/cache/$deb
play "$good" -vvv --diff
if grep "it's" played; then exit 1; fi
systemctl is-active $name
systemctl is-enabled $name
test "$(stat --format %a /etc/$name/environment)" = 600
grep A_URL /etc/$name/exporter.yml
pid=$(systemctl show --value --property MainPID $name)
tr '\0' '\n' <"/proc/$pid/environ" | grep -x "A_URL=json://localhost/it's"
for mode in "" --check; do
    play "$good" $mode
    grep -E 'changed=0 .*failed=0' played
done
if play '{"azure_scheduled_events_exporter_config": {"no_such_key": 1}}'; then exit 1; fi
grep 'no_such_key: ' played
play '{"azure_scheduled_events_exporter_config": {"metrics": {"resources": true}}}' --check --diff
grep -E 'changed=2 .*failed=0' played
grep A_URL /etc/$name/exporter.yml
# As on the command line, where every value is text.
play azure_scheduled_events_exporter_enabled=false
if systemctl is-active $name || systemctl is-enabled $name; then exit 1; fi
cp first.deb package.deb
play azure_scheduled_events_exporter_package=/check/package.deb
systemctl is-active $name
echo complete
