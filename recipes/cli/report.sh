#!/bin/sh
# The job of the crontab: makes the report of a day once.
#
# The lock lets one machine work at a time. A machine whose clock is late starts when the lock is free again, and finds
# the report. `ln` refuses to replace it, and the name appears with the complete report only.
set -eu

day=${REPORT_DAY:-$(date -u +%F)}
report=$REPORTS/$day

if [ -e "$report" ]; then
    exit 0
fi
temporary=$(mktemp "$REPORTS/.report-XXXXXX")
trap 'rm -f "$temporary"' EXIT
./sales.sh "$day" >"$temporary"
ln "$temporary" "$report"
