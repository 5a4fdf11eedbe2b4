"""The views of the shop."""

from django.urls import path

from shop.views import pay

urlpatterns = [path("orders/<int:order_id>/pay", pay)]
