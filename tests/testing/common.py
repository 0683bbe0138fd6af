from __future__ import annotations

from collections.abc import Sequence

import pytest

from django_jobs.engines.base import Engine
from django_jobs.testing import Ran
from tests.app.models import Effect

alone = pytest.mark.django_db(databases="__all__")
committed = pytest.mark.django_db(transaction=True, databases="__all__", available_apps=["django_jobs", "tests.app"])


def effects(engine: Engine) -> list[str]:
    return list(Effect.objects.using(engine.alias).order_by("pk").values_list("key", flat=True))


def told(ran: Sequence[Ran]) -> list[tuple[str, str, int]]:
    """Return type, status and run of each."""
    return [(one.type.rpartition(".")[2], one.status, one.run) for one in ran]
