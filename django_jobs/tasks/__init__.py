"""Tasks of Django's Tasks framework, kept and run as jobs; the backend itself is `django_jobs.tasks_backend`."""
