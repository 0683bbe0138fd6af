from __future__ import annotations

from django.apps import AppConfig


class BeatConfig(AppConfig):
    name = "tests.beat"
    label = "django_celery_beat"
    default_auto_field = "django.db.models.AutoField"
