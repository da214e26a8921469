#!/bin/sh
# Runs in a clean Debian under systemd, in a directory with first.deb and second.deb: install, use, upgrade, remove,
# install again, purge.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
. ./eventually.sh

ask() {
    python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())' \
        "http://127.0.0.1:9843$1"
}

first_seen() {
    ask /api/v1/events | python3 -c 'import json, sys; print(json.load(sys.stdin)["current"][0]["first_seen"])'
}

dpkg --install first.deb </dev/null
systemctl is-enabled $name
eventually ask /-/healthy
test "$(systemctl show --value --property MainPID $name)" -gt 0
test "$(stat --format %U "/proc/$(systemctl show --value --property MainPID $name)")" = $name
$name --version
$name check-config /etc/$name/exporter.yml
test -e /usr/share/man/man1/$name.1.gz
bash -c "source /usr/share/bash-completion/completions/$name"

# It watches something, by an edited configuration.
systemd-run --unit simulator $name simulate --scenario host-maintenance
printf 'imds: {endpoint: "http://127.0.0.1:9844"}\n' >>/etc/$name/exporter.yml
systemctl reload $name
eventually first_seen
seen=$(first_seen)
eventually sh -c "systemctl show --property StatusText $name | grep '1 event listed'"

# A mistake makes the reload fail, and changes nothing.
printf 'no_such_key: 1\n' >>/etc/$name/exporter.yml
if systemctl reload $name; then exit 1; fi
sed -i '$d' /etc/$name/exporter.yml
systemctl reload $name
systemctl is-active $name

# A process that hangs is started anew.
mkdir -p /run/systemd/system/$name.service.d
printf '[Service]\nWatchdogSec=3\n' >/run/systemd/system/$name.service.d/impatient.conf
systemctl daemon-reload
systemctl restart $name
kill -STOP "$(systemctl show --value --property MainPID $name)"
eventually sh -c "systemctl show --property NRestarts $name | grep -x NRestarts=1"
rm -r /run/systemd/system/$name.service.d
systemctl daemon-reload
systemctl restart $name

# An upgrade asks nothing, and keeps configuration and state.
pid=$(systemctl show --value --property MainPID $name)
dpkg --install second.deb </dev/null
eventually first_seen
test "$(systemctl show --value --property MainPID $name)" != "$pid"
test "$(first_seen)" = "$seen"
tail -n 1 /etc/$name/exporter.yml | grep 9844

# What the administrator switched off stays off.
systemctl disable --now $name
dpkg --install first.deb </dev/null
test "$(systemctl is-enabled $name)" = disabled
systemctl enable --now $name
eventually first_seen

# Removal stops it, and keeps configuration and state; a purge leaves nothing behind.
dpkg --remove $name </dev/null
if systemctl is-active $name; then exit 1; fi
test ! -e /opt/scheduled-events
test -e /etc/$name/exporter.yml
test -n "$(ls /var/lib/private/$name)"
dpkg --install second.deb </dev/null
eventually first_seen
test "$(first_seen)" = "$seen"
touch /etc/$name/environment
dpkg --purge $name </dev/null
test ! -e /opt/scheduled-events
test -z "$(find /etc /usr /var -name "*$name*" ! -path '/var/log/*')"
if getent passwd $name; then exit 1; fi
echo 'the life of the package is complete'
