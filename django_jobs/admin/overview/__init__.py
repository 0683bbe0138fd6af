"""The first page: what waits, runs and fails, where and how quickly, and what may be about to break."""

from django_jobs.admin.overview.page import Overview, overview

__all__ = ["Overview", "overview"]
