"""Settings of the test suite, and of the worker processes that it starts."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import time
from importlib.util import find_spec
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
    "django_celery_beat" if find_spec("django_celery_beat") else "tests.beat",
]
# The Tasks framework: Django's own from 6.0 on, and before it the package django-tasks if that is installed.
TASKS: dict[str, Any] = {}
if django.VERSION >= (6, 0) or importlib.util.find_spec("django_tasks"):
    # See tests/tasks_contract/README.md for what the environment may say.
    TASKS = json.loads(os.environ.get("TASKS_CONTRACT_TASKS", "null")) or {
        "default": {
            "BACKEND": "django_jobs.tasks_backend.JobsBackend",
            "QUEUES": ["default", "emails"],
            "OPTIONS": {
                "max_attempts": 1,
                "tasks": {
                    "tests.tasks_contract.tasks.fail_at_first": {"max_attempts": 2, "backoff": [0.05, 1, 0.05]},
                    "tests.tasks.app_tasks.by_path": {"max_attempts": 7, "timeout": 11},
                },
                "modules": ["tests.tasks.app_tasks"],
            },
        },
        "any_queue": {"BACKEND": "django_jobs.tasks_backend.JobsBackend", "QUEUES": []},
    }
    INSTALLED_APPS += [*(["django_tasks"] if django.VERSION < (6, 0) else []), "tests.tasks_contract"]
    INSTALLED_APPS += json.loads(os.environ.get("TASKS_CONTRACT_APPS", "[]"))
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
_LOCMEM = "django.core.mail.backends.locmem.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _LOCMEM}}
else:
    EMAIL_BACKEND = _LOCMEM
