from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Effect(models.Model):
    """What handlers of tests did: the truth that tests count."""

    key = models.CharField(max_length=200)
    run = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "app"

    def __str__(self) -> str:
        return f"{self.key} {self.run}"


class Ruled(models.Model):
    """Rows with rules that tests break: one that is checked at once, and one that PostgreSQL checks at the commit."""

    name = models.CharField(max_length=20, unique=True)
    other = models.ForeignKey("self", null=True, on_delete=models.CASCADE)

    class Meta:
        app_label = "app"

    def __str__(self) -> str:
        return self.name
