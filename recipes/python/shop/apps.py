"""Configures the locks of the shop."""

# --8<-- [start:client]
import redlock
from django.apps import AppConfig
from django.conf import settings


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        # The client of redlock.lock(). It connects at the first lock, in a forked worker afresh.
        redlock.configure(**settings.REDLOCK)
