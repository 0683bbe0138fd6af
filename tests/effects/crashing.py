"""Settings of workers that are killed at chosen points of chosen jobs, and that run the example's jobs as well."""

from __future__ import annotations

import os
from pathlib import Path

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "example_project.shop", "tests.effects.crashes"]
HERE = Path(os.environ["DJANGO_JOBS_TEST_CRASHES"])
MEDIA_ROOT = HERE / "media"
STORAGES = {
    "default": {"BACKEND": "example_project.shop.storage.AtomicFileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = HERE / "mail"
globals().pop("MAILERS", None)
