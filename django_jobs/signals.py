"""Signals that a project may receive. What a receiver raises is logged and changes nothing."""

from __future__ import annotations

from django.dispatch import Signal

# Sent in the process of a supervisor, with `alert`, a row of django_jobs.models.Alert: when a threshold is passed, and when
# it is kept again. At least once for each, and by one supervisor unless it is killed meanwhile.
alert_raised = Signal()
alert_cleared = Signal()
