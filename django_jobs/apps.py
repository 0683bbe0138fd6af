from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_jobs.workers import broken_start


class DjangoJobsConfig(AppConfig):
    name = "django_jobs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        broken_start.wait_out()

    def ready(self) -> None:
        from django_jobs import (
            bulk,  # noqa: F401 (registers the job that carries out acts upon many; needs the models)
            checks,  # noqa: F401 (registers the checks; as above)
        )
        from django_jobs.tasks import checks as tasks_checks  # noqa: F401 (registers the check)
        from django_jobs.tasks import discovery

        autodiscover_modules("jobs")
        discovery.discover()
