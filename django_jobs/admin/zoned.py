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
    seconds = ":s" if local.second else ""
    return f"{formatted(local, f'D Y-m-d H:i{seconds}')} {local.tzname()}"


def yours(at: datetime, zone: tzinfo) -> str:
    """Return what the viewer's clock shows, nothing where it shows the same as the zone's."""
    viewer = timezone.get_current_timezone()
    if at.astimezone(zone).replace(tzinfo=None) == at.astimezone(viewer).replace(tzinfo=None):
        return ""
    return reading(at, viewer)


def cell(at: datetime | None, key: str, clock: datetime) -> str:
    """Return an instant on both clocks and how far it is, one below the other; a zone not known here is left out."""
    if at is None:
        return shown.NOTHING
    zone = zone_or_none(key) or timezone.get_current_timezone()
    return format_html(
        '<div class="nowrap">{}</div>{}<div class="quiet dj-small dj-when">{}</div>',
        reading(at, zone),
        for_you(at, zone),
        shown.age(at, clock),
    )


def for_you(at: datetime, zone: tzinfo) -> str:
    said = yours(at, zone)
    return format_html('<div class="quiet dj-small nowrap">{} {}</div>', _("for you"), said) if said else ""


def line(at: datetime | None, key: str, clock: datetime) -> str:
    """Return the same in one line."""
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
