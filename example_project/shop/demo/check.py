"""Compares what a run did with what it should have done, counted from the files and from the payment service."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from email import message_from_bytes
from typing import TYPE_CHECKING

from django.db.models import Sum
from PIL import Image

from example_project.shop.catalogue import DATA, USB_IDS
from example_project.shop.demo import work
from example_project.shop.models import Order, OrderLine, Product, Receipt, Vendor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from example_project.shop.demo.work import Run
    from example_project.shop.payments import PaymentService

LOST_ANSWERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    what: str
    expected: int
    found: int

    @property
    def good(self) -> bool:
        return self.expected == self.found


def findings(run: Run, service: PaymentService, workers_exit: int) -> list[Finding]:
    pairs = [*_goods(run), *_sales(run, service), *_jobs(run), ("exit code of the workers", 0, workers_exit)]
    return [Finding(what=what, expected=expected, found=found) for what, expected, found in pairs]


def _goods(run: Run) -> Iterator[tuple[str, int, int]]:
    vendors, products = lines_of_catalogue(USB_IDS)
    prices = rows_of_prices()
    yield "vendors in the tables", vendors, Vendor.objects.count()
    yield "products in the tables", products, Product.objects.count()
    yield "products with a price", prices, Product.objects.filter(price_cents__isnull=False).count()
    yield "labels on disk", prices, len(sound_labels(run.labels))


def _sales(run: Run, service: PaymentService) -> Iterator[tuple[str, int, int]]:
    orders = list(Order.objects.filter(run_id=run.number))
    once = [
        order
        for order in orders
        if [(found["charge"], found["cents"]) for found in service.charges_of(order.number)]
        == [(order.payment, order.total_cents)]
    ]
    mails = mails_by_order(run.mails)
    yield "orders paid", work.ORDERS, sum(order.paid_at is not None for order in orders)
    yield "orders charged exactly once", work.ORDERS, len(once)
    yield "calls for the order whose answers were lost", LOST_ANSWERS + 1, service.calls_for(run.unlucky_order)
    yield "calls for all other orders", work.ORDERS - 1, service.calls.total() - service.calls_for(run.unlucky_order)
    yield "pieces counted as sold", _pieces_in_paid_orders(), Product.objects.aggregate(sold=Sum("sold"))["sold"]
    yield "receipts recorded", work.ORDERS, Receipt.objects.filter(order__run_id=run.number).count()
    yield "orders with exactly one mail", work.ORDERS, sum(mails[order.number] == 1 for order in orders)


def _pieces_in_paid_orders() -> int:
    """Return the pieces of the orders of all runs."""
    paid = OrderLine.objects.filter(order__paid_at__isnull=False)
    return int(paid.aggregate(pieces=Sum("quantity"))["pieces"] or 0)


def _jobs(run: Run) -> Iterator[tuple[str, int, int]]:
    jobs = run.jobs()
    # The two price lists, and for an order its charge, its booking and its receipt.
    yield "jobs in all", work.PARTS + 2 + rows_of_prices() + 3 * work.ORDERS, jobs.count()
    yield "jobs not ended", 0, run.unfinished().count()
    yield "jobs that failed first and recovered", 1, jobs.filter(status="done", attempts__gt=0).count()
    unlucky = jobs.filter(idempotency_key=f"charge:{run.unlucky_order}", status="done", attempts=LOST_ANSWERS)
    yield "... of them the charge of the unlucky order", 1, unlucky.count()
    yield "jobs in the dead-letter list", 1, jobs.filter(status__in=["dead", "failed"]).count()
    broken = jobs.filter(type="shop.import_prices", status="dead", attempts=3)
    yield "... of them the broken price list", 1, broken.count()


def lines_of_catalogue(path: Path) -> tuple[int, int]:
    """Count vendors and products by how their lines begin, apart from the parser that the import uses."""
    head = path.read_text(encoding="utf-8").partition("\nC 00")[0].splitlines()
    vendors = sum(line[:1] in set("0123456789abcdef") and line[:1] != "" for line in head)
    products = sum(line.startswith("\t") and not line.startswith("\t\t") for line in head)
    return vendors, products


def rows_of_prices() -> int:
    return len((DATA / work.PRICE_LIST).read_text(encoding="utf-8").splitlines()) - 1


def sound_labels(directory: Path) -> list[Path]:
    """Return the labels that are complete PNG files."""
    return [path for path in directory.glob("*.png") if _is_sound(path)]


def _is_sound(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError):
        return False
    return True


def mails_by_order(directory: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in directory.glob("*.log"):
        for text in path.read_bytes().split(b"\n" + b"-" * 79 + b"\n"):
            if order := message_from_bytes(text.lstrip())["X-Order"]:
                found[order] += 1
    return found
