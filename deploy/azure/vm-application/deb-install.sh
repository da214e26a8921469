# Installs, updates or downgrades the .deb of a VM Application: the command for both "install" and "update".
#
# The VM's agent runs it as root, by sh, in the directory of the download: the package is there without extension, under
# the name of the application, and so is exporter.yml if the version has a configuration. It may run again at any time.
set -eu
name=azure-scheduled-events-exporter
current=/etc/$name/exporter.yml
export DEBIAN_FRONTEND=noninteractive

# apt reads only files that end in .deb; it waits for other installations, such as those of the first boot.
ln -f "$name" "$name.deb"
apt-get install --yes --allow-downgrades --option DPkg::Lock::Timeout=600 "./$name.deb"

[ -e exporter.yml ] || exit 0
cp --preserve "$current" "$current.before"
# It may have secrets: a version of a VM Application has no other file for them.
install -m 0640 -g "$name" exporter.yml "$current"
if ! systemctl reload-or-restart "$name"; then
    mv "$current.before" "$current"
    systemctl restart "$name" || true
    echo "the exporter refuses the configuration, see journalctl --unit $name; the one before is back" >&2
    exit 1
fi
rm "$current.before"
