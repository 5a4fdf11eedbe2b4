"""The view of the shop, and the same view inside of an outer transaction."""

from django.db import transaction
from django.urls import path

from shop.views import pay


@transaction.non_atomic_requests
def refused(request, order_id):
    """Call the view in a transaction, as ATOMIC_REQUESTS does."""
    with transaction.atomic():
        return pay(request, order_id)


@transaction.non_atomic_requests
def early(request, order_id):
    """Do the same, and turn the check of durable=True off, in the way of Django's TestCase."""
    outer = transaction.atomic()
    outer._from_testcase = True
    with outer:
        return pay(request, order_id)


urlpatterns = [
    path("orders/<int:order_id>/pay", pay),
    path("refused/<int:order_id>/pay", refused),
    path("early/<int:order_id>/pay", early),
]
