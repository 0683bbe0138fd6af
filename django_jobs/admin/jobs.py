from __future__ import annotations

from django.contrib import admin

from django_jobs.admin.job_lists import JobLists
from django_jobs.admin.job_pages import JobPages
from django_jobs.models import Job


@admin.register(Job)
class JobAdmin(JobPages, JobLists):  # type: ignore[misc]
    """Jobs: their list, the page of each, and what may be done to them."""
