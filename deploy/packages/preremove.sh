#!/bin/sh
# A .deb gets "remove" or "upgrade"; an .rpm gets how many versions remain. An upgrade restarts the service afterwards.
set -e
unit=azure-scheduled-events-exporter.service

case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then systemctl stop "$unit"; fi
    if [ "$1" = 0 ] && command -v systemctl >/dev/null; then systemctl disable "$unit"; fi
    ;;
esac
