#!/bin/sh
# Runs in a clean Debian under systemd, in a directory with first.deb and second.deb: install, use, upgrade, remove,
# install again, purge.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
. ./eventually.sh

ask() {
    curl --fail --silent --show-error --max-time 5 "http://127.0.0.1:9843$1"
}

first_seen() {
    ask /api/v1/events | grep -o '"first_seen": *"[^"]*"' | head -n 1 | grep .
}

# An installation by hand is noticed, and not mixed with that of the package.
printf '[Service]\nExecStart=/opt/scheduled-events/bin/%s run\n' $name >/etc/systemd/system/$name.service
if dpkg --install first.deb </dev/null 2>refused; then exit 1; fi
grep 'is installed by hand' refused
dpkg --purge $name
rm /etc/systemd/system/$name.service
systemctl daemon-reload

dpkg --install first.deb </dev/null
systemctl is-enabled $name
eventually ask /-/healthy
test "$(systemctl show --value --property MainPID $name)" -gt 0
test "$(stat --format %U "/proc/$(systemctl show --value --property MainPID $name)")" = $name
$name --version
$name check-config /etc/$name/exporter.yml
test -e /usr/share/man/man1/$name.1.gz
$name assets /tmp/assets
test -e /tmp/assets/deploy/systemd/$name.service
bash -c "source /usr/share/bash-completion/completions/$name"
if command -v python3; then exit 1; fi
if grep -v '^#' /etc/$name/exporter.yml; then exit 1; fi
$name check-config /usr/share/doc/$name/exporter.yml

# It watches something, by an edited configuration.
systemd-run --unit simulator $name simulate --scenario host-maintenance
cat >>/etc/$name/exporter.yml <<'EOF'
imds: {endpoint: "http://127.0.0.1:9844"}
notifications:
  targets: [{name: a, url: "json://127.0.0.1:9/"}]
  templates: {title: "{{ event.type }}"}
hooks:
  - {name: env, command: [sh, -c, "env | sort; curl --version"]}
EOF
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

# Children of the program are the program itself, and hooks inherit nothing of its own: templates, targets, a hook.
$name check-config /etc/$name/exporter.yml
eventually sh -c "$name doctor --service | grep 'target: a: the last attempt, .*: it refuses connections'"
eventually sh -c "journalctl --unit $name | grep 'hook output.*HTTPS-proxy'"
if journalctl --unit $name | grep -E 'hook output.*(LD_LIBRARY_PATH|_PYI)'; then exit 1; fi

# An upgrade asks nothing, and keeps configuration and state.
pid=$(systemctl show --value --property MainPID $name)
dpkg --install second.deb </dev/null
eventually first_seen
test "$(systemctl show --value --property MainPID $name)" != "$pid"
test "$(first_seen)" = "$seen"
grep 9844 /etc/$name/exporter.yml
grep 'Another sample' /usr/share/doc/$name/exporter.yml

# What the administrator switched off stays off.
systemctl disable --now $name
dpkg --install first.deb </dev/null
test "$(systemctl is-enabled $name)" = disabled
systemctl enable --now $name
eventually first_seen

# Removal stops it, and keeps configuration and state; a purge leaves nothing behind.
dpkg --remove $name </dev/null
if systemctl is-active $name; then exit 1; fi
test -z "$(find /etc/systemd -name $name.service)"
test ! -e /usr/lib/$name
test -e /etc/$name/exporter.yml
test -n "$(ls /var/lib/private/$name)"
dpkg --install second.deb </dev/null
eventually first_seen
test "$(first_seen)" = "$seen"
touch /etc/$name/environment
dpkg --purge $name </dev/null
test ! -e /usr/lib/$name
test -z "$(find /etc /usr /var -name "*$name*" ! -path '/var/log/*')"
if getent passwd $name; then exit 1; fi
echo complete
