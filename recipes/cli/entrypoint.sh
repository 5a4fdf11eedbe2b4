#!/bin/sh
# The entry point of a container whose program runs once in a cluster: ENTRYPOINT ["/entrypoint.sh"]. `exec` makes
# redlock process 1 of the container. It gets the runtime's SIGTERM, forwards it, reaps orphans, and releases the lock
# when the program is gone.
set -eu

exec redlock exec "${LOCK:-worker}" -- "$@"
