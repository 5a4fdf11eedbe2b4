"""The shop with commits that the test holds, and with views that make the mistakes."""

from shop.settings import *  # noqa: F403

DATABASES["default"]["ENGINE"] = "controls.database"  # noqa: F405
ROOT_URLCONF = "controls.urls"
