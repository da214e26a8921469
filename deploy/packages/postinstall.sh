#!/bin/sh
# A .deb gets "configure" and, on an upgrade, the old version; an .rpm gets how many versions are installed now.
set -e
name=azure-scheduled-events-exporter
unit=$name.service

if [ ! -e /etc/$name/exporter.yml ]; then
    echo "# Every key has a default; /usr/share/doc/$name/exporter.yml explains them." >/etc/$name/exporter.yml
fi

# From version 253 on, systemd itself waits until a reload is complete.
dropins=/usr/lib/systemd/system/$unit.d
version=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
if [ "${version:-0}" -ge 253 ]; then
    install -D -m 0644 -t "$dropins" /usr/share/azure-scheduled-events-exporter/notify-reload.conf
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
case "$1" in
configure)
    # As debhelper does it: what the administrator disabled stays disabled.
    deb-systemd-helper unmask "$unit" >/dev/null
    if deb-systemd-helper --quiet was-enabled "$unit"; then
        deb-systemd-helper enable "$unit" >/dev/null
    else
        deb-systemd-helper update-state "$unit" >/dev/null
    fi
    if [ -d /run/systemd/system ]; then deb-systemd-invoke restart "$unit"; fi
    ;;
1)
    # Distributions with .rpm packages leave it to the administrator which services run.
    if command -v systemctl >/dev/null; then systemctl preset "$unit"; fi
    ;;
[0-9]*)
    if [ -d /run/systemd/system ]; then systemctl try-restart "$unit"; fi
    ;;
esac
