#!/bin/sh
# The last step of the CI job, which runs also if a step failed. A lease that was lost meanwhile fails the job (79):
# another job may have used the environment at the same time.
set -eu

# Without a lease, the first step failed.
if [ -s "$LEASE" ]; then
    redlock release - <"$LEASE"
    rm "$LEASE"
fi
