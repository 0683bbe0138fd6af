from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_jobs.engines.base import Engine
from tests.admin.site import Site

As = Callable[..., Site]


@pytest.fixture
def as_user(engine: Engine) -> As:
    """Return a maker of sites as a member of the staff with these permissions sees them."""

    def made(*codenames: str, enforce_csrf_checks: bool = False) -> Site:
        user = User.objects.create_user("vera", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        return Site(user, engine.alias, Client(enforce_csrf_checks))

    return made


@pytest.fixture
def site(engine: Engine) -> Site:
    """Return the site as somebody sees it who may do everything."""
    return Site(User.objects.create_superuser("ada"), engine.alias, Client())
