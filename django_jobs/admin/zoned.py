"""Times as the clocks of two zones show them: the schedule's, and that of whoever looks (Django's current time zone)."""

from __future__ import annotations

from datetime import datetime, tzinfo

from django.utils import timezone
from django.utils.dateformat import format as formatted
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_jobs import zones
from django_jobs.admin import shown


def zone_or_none(key: str) -> tzinfo | None:
    try:
        return zones.zone(key)
    except zones.BadZone:
        return None


def reading(at: datetime, zone: tzinfo) -> str:
    """Return what a zone's clock shows at an aware instant, with the day of the week."""
    local = at.astimezone(zone)
    return f"{formatted(local, f'D Y-m-d H:i{_seconds(local)}')} {local.tzname()}"


def _seconds(local: datetime) -> str:
    return ":s" if local.second else ""


def yours(at: datetime, zone: tzinfo) -> str:
    """Return what the viewer's clock shows, nothing where it shows the same as the zone's. The day is near enough."""
    local = at.astimezone(timezone.get_current_timezone())
    if at.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return ""
    return f"{formatted(local, f'D H:i{_seconds(local)}')} {local.tzname()}"


def line(at: datetime | None, key: str, clock: datetime) -> str:
    """Return an instant on both clocks and how far it is; a zone that is not known here is left out."""
    if at is None:
        return shown.NOTHING
    zone = zone_or_none(key) or timezone.get_current_timezone()
    said = yours(at, zone)
    return format_html(
        '<span class="nowrap">{}</span>{} <span class="quiet nowrap">({})</span>',
        reading(at, zone),
        format_html(' <span class="quiet nowrap">{} {}</span>', _("for you"), said) if said else "",
        shown.age(at, clock),
    )
