#!/bin/sh
# The user that the service runs as. It owns nothing but the state.
set -e
name=azure-scheduled-events-exporter

getent group "$name" >/dev/null || groupadd --system "$name"
getent passwd "$name" >/dev/null || useradd --system --gid "$name" --no-create-home \
    --home-dir /nonexistent --shell /usr/sbin/nologin --comment "Azure Scheduled Events exporter" "$name"
