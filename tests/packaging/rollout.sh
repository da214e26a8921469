#!/bin/sh
# Runs in a Debian with cloud-init and Ansible under systemd: what deploys the package to machines does so.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
export ANSIBLE_ROLES_PATH=/check/deploy/ansible/roles HOME=/root LC_ALL=C.UTF-8

# Custom data: valid, and installed by the commands in it but for the download.
cloud-init schema --config-file deploy/cloud-init/$name.yml
python3 - <<'EOF'
import pathlib, yaml
data = yaml.safe_load(open("/check/deploy/cloud-init/azure-scheduled-events-exporter.yml"))
(file,) = data["write_files"]
path = pathlib.Path(file["path"])
path.parent.mkdir()
path.write_text(file["content"])
(command,) = data["runcmd"]
lines = command[2].splitlines()
install = [line for line in lines if "apt-get install" in line]
pathlib.Path("/check/install").write_text("\n".join(["set -eu", "cp /check/first.deb exporter.deb", *install]))
EOF
(cd /tmp && sh /check/install </dev/null)
systemctl is-active $name
grep 'resources: true' /etc/$name/exporter.yml
dpkg --purge $name

# Ansible: installed and configured, nothing to do the second time, and a mistake changes nothing.
play() {
    ansible-playbook --inventory localhost, --connection local deploy/ansible/playbook.yml \
        --extra-vars azure_scheduled_events_exporter_package=/check/first.deb --extra-vars "$1"
}
good='{"azure_scheduled_events_exporter_config": {"notifications": {"targets": [{"name": "a", "url": "${A_URL}"}]}},
    "azure_scheduled_events_exporter_environment": {"A_URL": "json://localhost/it'"'"'s"}}'
play "$good"
systemctl is-active $name
systemctl is-enabled $name
test "$(stat --format %a /etc/$name/environment)" = 600
grep A_URL /etc/$name/exporter.yml
pid=$(systemctl show --value --property MainPID $name)
tr '\0' '\n' <"/proc/$pid/environ" | grep -x "A_URL=json://localhost/it's"
play "$good" | tee second
grep -E 'changed=0 .*failed=0' second
if play '{"azure_scheduled_events_exporter_config": {"no_such_key": 1}}'; then exit 1; fi
grep A_URL /etc/$name/exporter.yml
play '{"azure_scheduled_events_exporter_enabled": false}'
if systemctl is-active $name; then exit 1; fi
echo 'everything was rolled out'
