#!/bin/sh
# Runs in a clean distribution under systemd, beside the package: the lines of README's Install and Test it, which are
# in install.sh and test.sh, word by word, with a simulated Azure in the place of IMDS.
set -eux
name=azure-scheduled-events-exporter
cd "$(dirname "$0")"
. ./eventually.sh

sh -eux ./install.sh </dev/null
printf 'imds: {endpoint: "http://127.0.0.1:9844"}\nnotifications: {targets: [{name: a, url: "${A_URL}"}]}\n' \
    >/etc/$name/exporter.yml
echo 'A_URL=json://127.0.0.1:9844/' >/etc/$name/environment
systemctl restart $name
systemd-run --unit simulator $name simulate --idle
eventually curl --fail http://localhost:9843/-/ready

while read -r line; do
    sh -c "$line" 2>&1 || echo "status $?"
done <service.sh | tee service.log
grep '^/etc/.*: ok$' service.log
grep '^ok *target' service.log
# The simulator takes no messages.
grep '^NO .* a at json://127.0.0.1: ' service.log
test "$(grep -c '^status 1$' service.log)" = 1

systemctl stop simulator
while read -r line; do
    timeout 5 sh -c "$line" >log.run 2>&1 || test $? = 124 -o $? = 0
    cat log.run
    if grep Traceback log.run; then exit 1; fi
done <test.sh
echo complete
