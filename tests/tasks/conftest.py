from __future__ import annotations

import pytest
from django.conf import settings

from django_jobs import registry

# Django before 6.0, without the package django-tasks.
collect_ignore_glob = [] if settings.TASKS else ["test_*.py"]


@pytest.fixture(autouse=True)
def types_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_jobs.tasks import types  # there may be no framework

    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(types, "_known", dict(types._known))
    monkeypatch.setattr(types, "_tasks", dict(types._tasks))
