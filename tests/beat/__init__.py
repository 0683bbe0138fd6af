"""The tables of django-celery-beat 2.9, under its label, for where it is not installed: it would bring Celery."""
