"""The shop's background jobs. django_jobs finds this module by its name."""

from __future__ import annotations

import io
import time
from datetime import timedelta

from django.core.files import File
from django.core.files.storage import default_storage, storages
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from django_jobs import Backoff, Context, Snooze, job, once, outside, schedule
from example_project.shop import catalogue, ean13, labels, payments, pricelist, stock, takings
from example_project.shop.models import DemoRun, Order, Product, Receipt
from example_project.shop.storage import AtomicFileSystemStorage

LEFT_OVER = timedelta(hours=1)
VENDORS_AT_ONCE = 25
LABELS_AT_MOST = 80
LABELS_PER_SECOND = 4.0


@job(name="shop.import_catalogue", takes_context=True, max_attempts=3)
def import_catalogue(context: Context, part: int, parts: int) -> int:
    """Bring one part of the catalogue into the tables. Running it again changes nothing: rows are found by their
    codes."""
    entries = catalogue.read_part(part, parts)
    count = 0
    for start in range(0, len(entries), VENDORS_AT_ONCE):
        chosen = entries[start : start + VENDORS_AT_ONCE]
        count += len(stock.put_vendors(chosen))
        context.progress(start + len(chosen), len(entries), f"{count} products, up to {chosen[-1].name}")
    return count


# A broken file does not get better with time, so this type gives up soon.
@job(name="shop.import_prices", max_attempts=3, backoff=Backoff(base=0.5, factor=2, cap=2))
def import_prices(run: int, name: str) -> int:
    """Take over a supplier's price list, all of it or nothing, and order a new label for each product in it.

    An ordinary job may run again after it has committed. `once` finds its key then, which was committed with the prices
    and the orders of the labels, and nothing is ordered twice.
    """
    prices = list(pricelist.read_prices(catalogue.DATA / name))
    with transaction.atomic(), once(f"prices:{run}:{name}") as first:
        if first:
            products = stock.put_prices(prices)
            draw_label.enqueue_many([draw_label.call(run, product.pk) for product in products])
            first.result = len(products)
    return int(first.result)


@job(name="shop.draw_label", queue="labels", max_attempts=5)
def draw_label(run: int, product_id: int) -> str:
    """Draw the label of a product, store it and return its name. Drawn again, it replaces itself."""
    return _store_label(run, Product.objects.select_related("vendor").get(pk=product_id))


@job(name="shop.draw_vendor", queue="labels", takes_context=True, max_attempts=5)
def draw_vendor(context: Context, run: int, vendor_id: int) -> int | Snooze:
    """Draw a label for the vendor's first products, at the pace of the printer that prints them meanwhile."""
    products = Product.objects.select_related("vendor").filter(vendor=vendor_id).order_by("code")[:LABELS_AT_MOST]
    started = time.monotonic()
    for place, product in enumerate(products, 1):
        if context.should_stop:  # cancelled, or the worker stops: labels that are drawn again replace themselves
            return Snooze(0)
        _store_label(run, product)
        context.progress(place, len(products), product.name)
        time.sleep(max(0.0, started + place / LABELS_PER_SECOND - time.monotonic()))
    return len(products)


def _store_label(run: int, product: Product) -> str:
    price = "ask us" if product.price_cents is None else f"EUR {product.price_cents / 100:.2f}"
    number = ean13.in_store_number(product.vendor.code, product.code)
    picture = labels.draw(labels.Label(name=product.name, maker=product.vendor.name, price=price, number=number))
    return default_storage.save(f"labels/run-{run}/{number}.png", File(io.BytesIO(picture)))


@job(
    name="shop.charge_order",
    queue="payments",
    priority=10,
    max_attempts=6,
    backoff=Backoff(base=0.5, factor=3, cap=30),
    timeout=60,
)
def charge_order(order_id: int) -> str:
    """Have an order paid at the payment service, and have the payment booked.

    That we ask is committed before the call, and the answer after it. A run that finds the answer does not ask again;
    one that finds only the question asks with the same key, for which the service charges once.
    """
    order = Order.objects.get(pk=order_id)
    if order.paid_at is not None:
        return order.payment
    url = DemoRun.objects.latest("pk").payment_url
    with outside(f"charge:{order.number}") as call:
        if not call.answered:
            call.result = payments.charge(url, key=call.key, order=order.number, cents=order.total_cents)
    book_payment.using(idempotency_key=f"book:{order.number}").enqueue(order_id, call.result)
    return str(call.result)


@job(name="shop.book_payment", queue="payments", priority=10, atomic=True)
def book_payment(order_id: int, payment: str) -> None:
    """Book a payment: the order is paid, its goods are sold, and a receipt is to be sent.

    All of it and the end of this job are one transaction. So the goods are counted without looking whether that was done,
    and the receipt needs no key to be ordered once.
    """
    order = Order.objects.get(pk=order_id)
    Order.objects.filter(pk=order_id).update(paid_at=Now(), payment=payment)
    # Always in one order, so that two bookings do not wait for each other.
    for line in order.lines.order_by("product_id"):
        Product.objects.filter(pk=line.product_id).update(sold=F("sold") + line.quantity)
    send_receipt.enqueue(order_id)


@job(name="shop.send_receipt", queue="mail", priority=5, max_attempts=5)
def send_receipt(order_id: int) -> str:
    """Mail the receipt of a paid order, unless that was done.

    A mail server knows no keys: of a mail that was asked for without an answer nobody can tell whether it was sent. Then
    it is sent again, since two receipts are better than none. A job that does harm by that would raise `Fail` instead,
    and leave it to a person.
    """
    order = Order.objects.get(pk=order_id)
    with outside(f"receipt:{order.number}") as call:
        if not call.answered:
            _mail(order).send()
            call.result = f"sent to {order.email}"
    Receipt.objects.get_or_create(order=order)
    return str(call.result)


def _mail(order: Order) -> EmailMessage:
    lines = [
        f"{line.quantity:3} x {line.product.name[:50]:50} {line.quantity * line.unit_cents / 100:10.2f}"
        for line in order.lines.select_related("product")
    ]
    total = f"{'Total, paid':56} {order.total_cents / 100:10.2f}"
    return EmailMessage(
        subject=f"Receipt for order {order.number}",
        body="\n".join(["Thank you for your order.", "", *lines, "", total, f"Payment {order.payment}"]),
        from_email="shop@example.com",
        to=[order.email],
        headers={"X-Order": order.number},
    )


# At half past two there is no half past two on one night of the year, and there are two on another: the books of each day
# are made up once all the same. A week that nobody ran workers in is made up for day by day.
@schedule("30 2 * * *", timezone="Europe/Berlin", missed="all", missed_limit=takings.DAYS)
@job(name="shop.record_takings", takes_context=True)
def record_takings(context: Context) -> str:
    """Write down what was paid on the day before: which one that is, the slot says, however late the job runs."""
    return str(takings.record(takings.day_before(context.slot or timezone.now())))


# All shops of a chain would mail at the same second: `spread` gives each its own within five minutes.
@schedule("0 7 * * mon", timezone="Europe/Berlin", spread=timedelta(minutes=5))
@job(name="shop.mail_week", queue="mail", takes_context=True)
def mail_week(context: Context) -> str:
    """Mail the owner what the last seven days brought."""
    last = takings.day_before(context.slot or timezone.now())
    with outside(f"week:{last}") as call:
        if not call.answered:
            mail = takings.summary(last)
            mail.send()
            call.result = mail.subject
    return str(call.result)


@schedule(every=timedelta(hours=6), missed="skip", overlap="skip")
@job(name="shop.tidy_up", queue="labels", priority=-10)
def tidy_up() -> int:
    """Remove what was half written when a worker was killed. What is missed is not made up for: the next time will do."""
    storage = storages["default"]
    assert isinstance(storage, AtomicFileSystemStorage)
    return storage.remove_left_over("labels", LEFT_OVER)
