#!/bin/sh
# The user that the service runs as; it owns nothing but the state. A .deb gets "install" or "upgrade", an .rpm gets how
# many versions are installed afterwards.
set -e
name=azure-scheduled-events-exporter

# A unit in /etc hides that of the package: the service would go on with a program that no upgrade reaches.
by_hand=/etc/systemd/system/$name.service
case "$1" in
install | 1)
    if [ -e "$by_hand" ] && ! grep -q "^ExecStart=/usr/bin/$name " "$by_hand"; then
        echo "$name is installed by hand: $by_hand runs another program than the package's. Remove it first, and" >&2
        echo "install the package again; configuration and state are kept:" >&2
        echo "  systemctl disable --now $name && rm -r $by_hand /opt/scheduled-events && systemctl daemon-reload" >&2
        exit 1
    fi
    ;;
esac
getent group "$name" >/dev/null || groupadd --system "$name"
getent passwd "$name" >/dev/null || useradd --system --gid "$name" --no-create-home \
    --home-dir /nonexistent --shell /usr/sbin/nologin --comment "Azure Scheduled Events exporter" "$name"
