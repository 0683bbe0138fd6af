"""Settings of the test suite, and of the worker processes that it starts."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

import django

from django_jobs.workers import plan

SECRET_KEY = "only for tests"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_jobs",
    "example_project.shop",
    "tests.app",
]
if "DJANGO_JOBS_TEST_WITHOUT_SHOP" in os.environ:  # its schedules would make jobs
    INSTALLED_APPS.remove("example_project.shop")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

STATIC_URL = "static/"
# tests/plugin.py names the databases; worker processes that a test starts are given theirs the same way.
DATABASES: dict[str, Any] = json.loads(os.environ.get("DJANGO_JOBS_TEST_DATABASES", "null")) or {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
}
DATABASE_ROUTERS = ["tests.router.JobsRouter"]
DJANGO_JOBS: dict[str, Any] = json.loads(os.environ.get("DJANGO_JOBS_TEST_SETTINGS", "{}"))
LOGGING: dict[str, Any] = json.loads(os.environ.get("DJANGO_JOBS_TEST_LOGGING", "{}"))
if "DJANGO_JOBS_TEST_PATIENCE" in os.environ:
    plan.PATIENCE = float(os.environ["DJANGO_JOBS_TEST_PATIENCE"])
if "FAKETIME" in os.environ:
    # Python sleeps until a moment of the monotonic clock, which libfaketime takes for one of the clock that it fakes.
    time.sleep = lambda seconds: select.select([], [], [], float(seconds)) and None
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
