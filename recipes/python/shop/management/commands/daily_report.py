"""A periodic job: cron starts it on every machine, and one of them does it."""

# --8<-- [start:command]
import signal
import sys

import redlock
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_date

from shop.models import Report
from shop.services import compute_report


class Command(BaseCommand):
    help = "Makes the report of a day, once."

    def add_arguments(self, parser):
        parser.add_argument("--day", type=parse_date, default=timezone.localdate())

    def handle(self, day, **options):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves the blocks, and so releases
        try:
            # The wait is longer than the job and a lease: if a machine dies, another one takes its place.
            with redlock.lock("daily-report", wait=900) as lease:
                # A machine whose clock is late comes after the release. The lock cannot stop it, the row does.
                if Report.objects.filter(day=day).exists():
                    self.stdout.write("done before")
                    return
                text = compute_report(day)
                with transaction.atomic(durable=True):
                    Report.objects.create(day=day, text=text)  # the mark and the effect in one transaction
                    lease.check()
                self.stdout.write("done")
        except redlock.LockTimeout:
            self.stdout.write("another machine is at it")
        except redlock.Unavailable as error:
            raise CommandError(str(error), returncode=75) from error
