#!/bin/sh
# State and configuration outlive everything but `apt-get purge`.
set -e
name=azure-scheduled-events-exporter

case "$1" in
remove | purge | 0)
    rm -rf "/usr/lib/systemd/system/$name.service.d"
    # Nothing stays enabled that is not there.
    if command -v deb-systemd-helper >/dev/null; then deb-systemd-helper purge "$name.service" >/dev/null; fi
    ;;
esac
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
    rm -rf "/etc/$name" "/var/lib/private/$name" "/var/lib/$name"
    if getent passwd "$name" >/dev/null; then userdel "$name"; fi
fi
