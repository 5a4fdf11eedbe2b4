"""A view that must neither hang nor charge twice."""

# --8<-- [start:view]
import redlock
from django.db import transaction
from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.services import charge


@require_POST
@transaction.non_atomic_requests  # with ATOMIC_REQUESTS, Django commits after the view and so after the release
def pay(request, order_id):
    # The transaction is the inner block: it commits first. durable=True refuses to be part of an outer transaction.
    with redlock.lock(f"order:{order_id}", wait=2) as lease, transaction.atomic(durable=True):
        order = get_object_or_404(Order, pk=order_id)  # read after the acquire
        if not order.paid:
            lease.check()
            charge(order)
            order.paid = True
            order.save(update_fields=["paid"])
            lease.check()  # raises LockLost after a loss, and so rolls back
    return JsonResponse({"paid": True})
