#!/bin/sh
# The first step of a CI job that needs a shared environment. The lease is longer than the job: nobody renews it between
# the steps. The file is a secret, since whoever reads it can release the lock.
set -eu

umask 077
redlock acquire "${ENVIRONMENT:-staging}" --ttl 30m --wait 15m >"$LEASE"
