#!/bin/sh
# Runs in a Debian with rpm under systemd: install, upgrade and remove the .rpm. Dependencies are those of others.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
. ./eventually.sh

ask() {
    curl --fail --silent --max-time 5 http://127.0.0.1:9843/-/healthy
}

rpm --install --nodeps exporter.rpm
getent passwd $name
$name --version
systemctl enable --now $name
eventually ask
echo '# mine' >>/etc/$name/exporter.yml

pid=$(systemctl show --value --property MainPID $name)
rpm --upgrade --force --nodeps exporter.rpm
eventually ask
test "$(systemctl show --value --property MainPID $name)" != "$pid"
grep '# mine' /etc/$name/exporter.yml

rpm --erase $name
if systemctl is-active $name; then exit 1; fi
test ! -e /usr/lib/$name
test ! -e /etc/systemd/system/multi-user.target.wants/$name.service
test -n "$(ls /var/lib/private/$name)"
test -e /etc/$name/exporter.yml
getent passwd $name
echo complete
