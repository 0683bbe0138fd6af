"""Run by test_unfold.py in a process of its own: opens every page in a project with django-unfold, and prints what came."""

from __future__ import annotations

import json

import django

ERROR = "ValueError: no such order"


def main() -> None:
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.test.utils import setup_test_environment

    from tests.admin import addresses
    from tests.admin.site import Site

    call_command("migrate", verbosity=0)
    setup_test_environment()
    site = Site(User.objects.create_superuser("ada"), "default", Client())
    rows = addresses.rows(site.alias)
    found = {str(address): site.client.get(address.url(rows)).status_code for address in addresses.addresses()}
    job = site.make("dead", type="shop.jobs.charge", last_error=ERROR)
    overview = site.client.get("/admin/django_jobs/").content.decode()
    listed = site.list().content.decode()
    page = site.page(job)
    print(json.dumps({
        "statuses": found,
        "unfold": ["unfold" in text for text in (overview, listed, page)],
        "overview": "django_jobs" in overview,
        "list": [ERROR in listed, "shop." in listed, f"/job/{job.pk}/change/" in listed],
        "job": ['id="explanation"' in page, 'id="requeue"' in page, ERROR in page, "django_jobs/admin.css" in page],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
