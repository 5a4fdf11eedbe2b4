"""The tasks of the recipe with other settings, and with its mistakes."""

import contextlib
import os
from types import SimpleNamespace

import redlock

import celery_app
from celery_app import app

CONTROL = os.environ["CONTROL"].split(", ")

if "short leases" in CONTROL:
    celery_app.locks = redlock.Redlock(os.environ["REDLOCK_URL"], watchdog=0.5)
if "no locks" in CONTROL:
    lease = SimpleNamespace(token=0, check=lambda: None)
    celery_app.locks = SimpleNamespace(lock=lambda *_, **__: contextlib.nullcontext(lease))
if "short visibility" in CONTROL:
    # A task counts as lost after a second, and the worker looks for such tasks five times a second.
    app.conf.broker_transport_options = {
        "visibility_timeout": 1,
        "unacked_restore_interval": 0.2,
        "unacked_restore_throttle": 1,
    }
if "acknowledged" in CONTROL:
    app.conf.task_reject_on_worker_lost = False
