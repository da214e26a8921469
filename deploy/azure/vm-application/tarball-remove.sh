# Removes the tarball of a VM Application: the command for "remove". Configuration and state are kept.
set -eu
name=azure-scheduled-events-exporter
unit=/etc/systemd/system/$name.service
if [ -e "$unit" ]; then
    systemctl disable --now "$name"
    rm "$unit"
    systemctl daemon-reload
fi
rm -rf /opt/scheduled-events/bin /opt/scheduled-events/bin.new /opt/scheduled-events/bin.before
