"""Settings of the example project. `manage.py` chooses the database, starts it, and names it in DATABASE_URL."""

from __future__ import annotations

from typing import Any

import environ

from example_project.database import VAR

env = environ.Env()

# For this example only: a project of yours keeps its own secret.
SECRET_KEY = env.str("SECRET_KEY", default="django-jobs-example-not-a-secret")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_jobs",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",  # each person reads the admin in the language of the browser
    "django.middleware.common.CommonMiddleware",
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
ROOT_URLCONF = "example_project.urls"

# In memory for what needs no database, such as makemigrations or a type checker.
DATABASES: dict[str, dict[str, Any]] = {"default": env.db("DATABASE_URL", default="sqlite://:memory:")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Without it a transaction that reads before it writes fails at once when another process writes meanwhile.
    DATABASES["default"].setdefault("OPTIONS", {})["transaction_mode"] = "IMMEDIATE"

DJANGO_JOBS = {"PROCESSES": 2, "THREADS": 4, "SHUTDOWN_GRACE": 10}

LANGUAGE_CODE = "en"
LANGUAGES = [("de", "Deutsch"), ("en", "English")]
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
MEDIA_ROOT = VAR / "media"
MEDIA_URL = "media/"
STORAGES = {
    "default": {"BACKEND": "example_project.shop.storage.AtomicFileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = VAR / "mail"
