"""The settings of the shop: only those that the recipe needs."""

import os

SECRET_KEY = "only the recipe's"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["shop.apps.ShopConfig"]
MIDDLEWARE = ["shop.middleware.LockErrors"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["DATABASE"],
        "ATOMIC_REQUESTS": True,
    }
}
SHOP_URL = os.environ["SHOP_URL"]

REDLOCK = {  # its URLs are those of the variable REDLOCK_URL
    "prefix": "shop:",
    "watchdog": float(os.environ.get("REDLOCK_WATCHDOG", "30")),
}
