"""The books of the shop, by the days of its own calendar: 23 or 25 hours long when the clocks change."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Count, Sum
from django.utils import timezone

from example_project.shop.models import Order, Takings

BERLIN = ZoneInfo("Europe/Berlin")
DAYS = 7


def day_before(moment: datetime) -> date:
    return timezone.localtime(moment, BERLIN).date() - timedelta(days=1)


def record(day: date) -> Takings:
    """Write down what was paid on a day. Done again, it replaces what is there."""
    start, end = (datetime.combine(day + timedelta(days=n), time(), BERLIN) for n in range(2))
    paid = Order.objects.filter(paid_at__gte=start, paid_at__lt=end).aggregate(
        orders=Count("id"), cents=Sum("total_cents")
    )
    values = {"orders": paid["orders"], "cents": paid["cents"] or 0}
    found, _new = Takings.objects.update_or_create(day=day, defaults=values)
    return found


def summary(last: date) -> EmailMessage:
    """Return the mail about the week that ends with a day."""
    days = Takings.objects.filter(day__gt=last - timedelta(days=DAYS), day__lte=last).order_by("day")
    lines = [f"{found.day:%a %d %b}  {found.orders:5} orders  EUR {found.cents / 100:10.2f}" for found in days]
    total = f"Total{'':19}  EUR {sum(found.cents for found in days) / 100:10.2f}"
    return EmailMessage(
        subject=f"Takings of the week to {last:%d %B}",
        body="\n".join([*lines, total]),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=["owner@example.com"],
    )
