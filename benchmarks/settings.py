import os

import environ

SECRET_KEY = "only for benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_jobs", "benchmarks"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": environ.Env.db_url_config(os.environ.get("DATABASE_URL", "sqlite://:memory:"))}
