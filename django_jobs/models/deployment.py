from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Deployment(models.Model):
    """Whose this database is, in one row: the DEPLOYMENT of the first workers that had one, or of who adopted it since.

    A copy of the database has the same; `instance` is random, and made anew when a copy is adopted.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    instance = models.CharField(max_length=32)
    name = models.CharField(max_length=100, blank=True, db_default="")
    adopted_at = models.DateTimeField(db_default=Now())
    adopted_by = models.CharField(max_length=255, blank=True, db_default="")

    class Meta:
        default_permissions = ()
        constraints = [models.CheckConstraint(name="django_jobs_deployment_one", condition=Q(id=1))]

    def __str__(self) -> str:
        return self.name or self.instance
