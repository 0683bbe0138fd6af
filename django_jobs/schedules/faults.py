"""What is wrong with a schedule, by field: as Django's forms take it, and as one text."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.text import capfirst

from django_jobs.models.schedule import Schedule
from django_jobs.texts import Text, foreign, lazily

Faults = dict[str, list[str]]


def refused(found: Faults) -> ValidationError:
    """Return faults as Django's forms take them, which show each in the reader's language."""
    return ValidationError({name: [lazily(text) for text in texts] for name, texts in found.items()})


def said(error: ValidationError) -> Text:
    """Return the messages of an error by field as one text."""

    def say() -> str:
        told = ((name, _label(name), " ".join(texts)) for name, texts in error.message_dict.items())
        return " ".join(
            text if text.startswith((name, capfirst(label))) else f"{label}: {text}" for name, label, text in told
        )

    return foreign(say)


def _label(name: str) -> str:
    """Return what the active language calls a field; in English its name, as it is in code."""
    if name == NON_FIELD_ERRORS:
        return name
    field: Any = Schedule._meta.get_field(name)
    label = foreign(lambda: str(field.verbose_name))
    return name if label.translated() == label else label.translated()
