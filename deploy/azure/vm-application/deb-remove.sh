# Removes the .deb of a VM Application: the command for "remove". Configuration and state are kept.
set -eu
name=azure-scheduled-events-exporter
export DEBIAN_FRONTEND=noninteractive
if dpkg --status "$name" >/dev/null 2>&1; then
    apt-get remove --yes --option DPkg::Lock::Timeout=600 "$name"
fi
