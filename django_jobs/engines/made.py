"""The job that was just stored, from what was sent and the little that came back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db.models import NOT_PROVIDED

from django_jobs.engines.values import NewJob
from django_jobs.models import Job

# What only the database knows.
RETURNED = ("id", "run_at", "expires_at", "created_at")
_FIELDS = [field.attname for field in Job._meta.concrete_fields]
_DEFAULTS: dict[str, Any] = {
    field.attname: None if field.db_default is NOT_PROVIDED else field.db_default for field in Job._meta.concrete_fields
}


def made(alias: str, new: NewJob, returned: Sequence[Any]) -> Job:
    """Return the job as its row has it. Every job has lists and dicts of its own."""
    row = _DEFAULTS | new.parameters() | dict(zip(RETURNED, returned, strict=True))
    row["payload"], row["meta"], row["history"] = json.loads(new.payload), json.loads(new.terms.meta), []
    return Job.from_db(alias, _FIELDS, [row[name] for name in _FIELDS])
