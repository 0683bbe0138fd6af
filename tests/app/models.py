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
