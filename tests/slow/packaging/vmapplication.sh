#!/bin/sh
# Runs in a clean Debian under systemd, in a directory with the packages and deploy/azure: the commands of the VM
# Application, as the agent of an Azure VM runs them.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
. ./eventually.sh

# agent COMMAND VERSION PACKAGE [CONFIGURATION]: the package has no extension, and a version has its own directory.
agent() {
    directory=/var/lib/waagent/Microsoft.CPlat.Core.VMApplicationManagerLinux/$name/$2
    mkdir -p "$directory"
    chmod 700 /var/lib/waagent
    cp "$3" "$directory/$name"
    if [ $# = 4 ]; then printf '%s\n' "$4" >"$directory/exporter.yml"; fi
    (cd "$directory" && sh -c "$(cat "/check/vm-application/$1")" </dev/null)
}

works() {
    eventually curl --fail --silent --show-error --max-time 5 http://127.0.0.1:9843/-/healthy
    systemctl is-enabled $name
    test "$(stat --format %U "/proc/$(systemctl show --value --property MainPID $name)")" = $name
    test "$(readlink "/proc/$(systemctl show --value --property MainPID $name)/exe")" = "$1"
}

lives() {
    kind=$1 first=$2 second=$3 executable=$4
    agent "$kind-remove.sh" 0.1.0 "$first"
    agent "$kind-install.sh" 0.1.0 "$first"
    agent "$kind-install.sh" 0.1.0 "$first"
    works "$executable"
    agent "$kind-install.sh" 0.2.0 "$second" 'metrics: {resources: true}'
    test "$(stat --format '%a %U %G' /etc/$name/exporter.yml)" = "640 root $name"
    agent "$kind-install.sh" 0.2.0 "$second"
    works "$executable"
    if agent "$kind-install.sh" 0.3.0 "$second" 'no_such_key: 1'; then exit 1; fi
    works "$executable"
    # Back to the version before, which has no configuration.
    agent "$kind-install.sh" 0.1.0 "$first"
    works "$executable"
    agent "$kind-remove.sh" 0.1.0 "$first"
    agent "$kind-remove.sh" 0.1.0 "$first"
    if systemctl is-active $name; then exit 1; fi
    grep resources /etc/$name/exporter.yml
    test -d /var/lib/private/$name
}

lives deb first.deb second.deb "$(cat executable-package)"
agent deb-install.sh 0.1.0 first.deb
if agent tarball-install.sh 0.1.0 first.tar.gz; then exit 1; fi
dpkg --purge $name
lives tarball first.tar.gz first.tar.gz "$(cat executable-tarball)"
echo complete
