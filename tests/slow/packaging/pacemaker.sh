#!/bin/sh
# Runs in a Debian with a Pacemaker cluster of one node under systemd: the hook of examples/pacemaker moves resources away.
set -eux
cd "$(dirname "$0")"
. ./eventually.sh

active() {
    crm_mon --one-shot --output-as=xml | grep 'id="it".* active="true"'
}

stopped() {
    ! active
}

systemctl start corosync pacemaker
eventually crm_node --name
eventually sh -c 'crm_mon --one-shot --output-as=xml | grep "online=\"true\""'
crm_attribute --name stonith-enabled --update false
crm_attribute --name node-health-strategy --update custom
cibadmin --create --scope resources --xml-text '<primitive id="it" class="ocf" provider="pacemaker" type="Dummy"/>'
eventually active

export EVENT_ID=C7061BAC-AFDC-4513-B24B-AA5F13A16123
EVENT_TRANSITION=scheduled timeout 60 ./set_health
stopped
EVENT_ID=ANOTHER EVENT_TRANSITION=started timeout 60 ./set_health
EVENT_TRANSITION=completed timeout 60 ./set_health
stopped
EVENT_ID=ANOTHER EVENT_TRANSITION=cancelled timeout 60 ./set_health
eventually active
# An event of which nothing is known changes nothing.
EVENT_TRANSITION=vanished timeout 60 ./set_health
active
echo complete
