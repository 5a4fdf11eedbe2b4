#!/bin/sh
# Migrates the database at a deploy: `migrate.sh alembic upgrade head`. Each new replica runs it before its server. One
# replica migrates, the others wait, and then find nothing to do. If the lock is lost, the migration is ended and the
# deploy fails.
set -eu

exec redlock exec "migrate-${DATABASE:-main}" --wait 10m -- "$@"
