"""Orders, and the report of each day."""

from django.db import models


class Order(models.Model):
    paid = models.BooleanField(default=False)


class Report(models.Model):
    day = models.DateField(unique=True)
    text = models.TextField()
