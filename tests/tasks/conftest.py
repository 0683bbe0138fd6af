from __future__ import annotations

import pytest

from django_jobs import registry


@pytest.fixture(autouse=True)
def types_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_jobs.tasks import types  # there may be no framework

    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(types, "_known", dict(types._known))
    monkeypatch.setattr(types, "_tasks", dict(types._tasks))
