"""The work of one run of the demo: what is enqueued, and which jobs belong to it."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import router, transaction
from django.db.models import Max, Q

from django_jobs.models import Job
from example_project.shop.jobs import charge_order, import_catalogue, import_prices
from example_project.shop.models import DemoRun, Order, OrderLine, Product

if TYPE_CHECKING:
    from django_jobs.models.job import JobQuerySet

PARTS = 16
ORDERS = 80
PRICE_LIST, BROKEN_PRICE_LIST = "prices_main.csv", "prices_extra.csv"
FINAL = (Job.Status.DONE, Job.Status.FAILED, Job.Status.DEAD, Job.Status.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's jobs have its number in their keys or arguments: jobs left by a stopped run may still enqueue others now."""

    number: int
    after: int

    @classmethod
    def begin(cls, payment_url: str) -> Run:
        """Take a new number, and remove the labels and mails of earlier runs: they may be another database's."""
        alias = router.db_for_write(Job)
        highest = Job.objects.using(alias).aggregate(highest=Max("id"))["highest"] or 0
        run = cls(number=DemoRun.objects.create(payment_url=payment_url).pk, after=highest)
        shutil.rmtree(run.labels.parent, ignore_errors=True)
        shutil.rmtree(run.mails, ignore_errors=True)
        return run

    def jobs(self) -> JobQuerySet:
        found: JobQuerySet = Job.objects.using(router.db_for_write(Job))
        # The id only narrows the search.
        return found.filter(self._keys() | self._arguments(), id__gt=self.after)

    def _keys(self) -> Q:
        starts = ("import:{}:", "prices:{}:", "charge:{}-", "book:{}-")
        return reduce(or_, (Q(idempotency_key__startswith=start.format(self.number)) for start in starts))

    def _arguments(self) -> Q:
        """Those that are enqueued once without a key: by `once`, and by an atomic job."""
        orders = list(
            Order.objects.filter(run_id=self.number, number__in=self.order_numbers()).values_list("pk", flat=True)
        )
        labels = Q(type="shop.draw_label", payload__args__0=self.number, idempotency_key=None)
        return labels | Q(type="shop.send_receipt", payload__args__0__in=orders)

    def unfinished(self, job_type: str = "") -> JobQuerySet:
        return self.jobs().exclude(status__in=FINAL).filter(type__startswith=job_type)

    def order_numbers(self) -> list[str]:
        return [f"{self.number}-{place:03d}" for place in range(1, ORDERS + 1)]

    @property
    def unlucky_order(self) -> str:
        """The order for which the answers of the payment service get lost at first."""
        return self.order_numbers()[ORDERS // 2]

    @property
    def labels(self) -> Path:
        return Path(settings.MEDIA_ROOT) / "labels" / f"run-{self.number}"

    @property
    def mails(self) -> Path:
        return Path(settings.EMAIL_FILE_PATH)  # type: ignore[misc]  # not in every project's settings


def bring_in_catalogue(run: Run) -> None:
    for part in range(PARTS):
        import_catalogue.using(idempotency_key=f"import:{run.number}:{part}").enqueue(part, PARTS)


def bring_in_prices(run: Run) -> None:
    for name in (PRICE_LIST, BROKEN_PRICE_LIST):
        import_prices.using(idempotency_key=f"prices:{run.number}:{name}").enqueue(run.number, name)


def place_orders(run: Run) -> None:
    """Place the orders and enqueue their charges, in one transaction."""
    choice = random.Random(run.number)
    products = list(Product.objects.filter(price_cents__isnull=False).order_by("pk"))
    with transaction.atomic():
        for number in run.order_numbers():
            order = _place_order(run, number, choice.sample(products, choice.randint(1, 4)), choice)
            charge_order.using(idempotency_key=f"charge:{number}").enqueue(order.pk)


def _place_order(run: Run, number: str, products: list[Product], choice: random.Random) -> Order:
    lines = [
        OrderLine(product=product, quantity=choice.randint(1, 3), unit_cents=product.price_cents or 0)
        for product in products
    ]
    order = Order.objects.create(
        run_id=run.number,
        number=number,
        email=f"customer-{number}@example.com",
        total_cents=sum(line.quantity * line.unit_cents for line in lines),
    )
    for line in lines:
        line.order = order
    OrderLine.objects.bulk_create(lines)
    return order
