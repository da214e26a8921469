# Installs, updates or downgrades the tarball of a VM Application: the command for both "install" and "update".
#
# The VM's agent runs it as root, by sh, in the directory of the download: the package is there without extension, under
# the name of the application, and so is exporter.yml if the version has a configuration. It may run again at any time.
set -eu
name=azure-scheduled-events-exporter
program=/opt/scheduled-events/bin
current=/etc/$name/exporter.yml
unit=/etc/systemd/system/$name.service

if [ -e /usr/lib/systemd/system/$name.service ] || [ -e /opt/scheduled-events/pyvenv.cfg ]; then
    echo "$name is installed in another way, by a package or in a Python environment; remove that first" >&2
    exit 1
fi
rm -rf "$program.new" "$program.before" assets
mkdir -p "$program.new" "/etc/$name"
tar --extract --gzip --no-same-owner --file "$name" --directory "$program.new" --strip-components 1
"$program.new/$name" assets assets >/dev/null

# With an entry in /etc/passwd, every program can tell whose process it is; DynamicUser= then takes this user.
if ! getent passwd "$name" >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$name"
fi
if [ ! -e "$current" ]; then
    echo "# Every key has a default; deploy/exporter.yml of the project explains them." >"$current"
fi
cp --preserve "$current" "$current.before"
# It may have secrets: a version of a VM Application has no other file for them.
if [ -e exporter.yml ]; then install -m 0640 -g "$name" exporter.yml "$current"; fi
if [ -d "$program" ]; then mv "$program" "$program.before"; fi
mv "$program.new" "$program"
install -m 0644 "assets/deploy/systemd/$name.service" "$unit"
rm -r assets
# The labels of SELinux, where there is SELinux.
if command -v restorecon >/dev/null; then restorecon -R /opt/scheduled-events "$unit"; fi
systemctl daemon-reload
systemctl enable "$name"
if ! systemctl restart "$name"; then
    mv "$current.before" "$current"
    if [ -d "$program.before" ]; then
        rm -r "$program"
        mv "$program.before" "$program"
    fi
    systemctl restart "$name" || true
    echo "the exporter does not start, see journalctl --unit $name; what was there before is back" >&2
    exit 1
fi
rm -rf "$program.before" "$current.before"
