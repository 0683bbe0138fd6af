"""Jobs whose process is killed twice at a point, and then runs to its end: what they did is counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models.functions import Now

from django_jobs.models import Job, Pause
from example_project.shop import catalogue, payments
from example_project.shop import jobs as shop
from example_project.shop.demo.check import mails_by_order
from example_project.shop.models import DemoRun, Order, OrderLine, Product, Receipt, Takings, Vendor
from tests.app.jobs import nothing
from tests.effects.replay_jobs import by_once, by_outside, by_transaction
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import effects, on_postgresql

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]
PLAIN = ("before", "returned", "stored")
ONCE = ("before", "taken", "returned", "stored")
ATOMIC = ("before", "returned", "completed", "committed", "stored")
OUTSIDE = ("before", "asked", "called", "answered", "returned", "stored")
# When the process dies at these the job is done: nothing runs it again.
DONE_BEFORE = ("committed", "stored")


class Killed:
    """Workers that are killed as planned, until all jobs are done."""

    def __init__(self, tree: Tree, directory: Path) -> None:
        self.tree = tree
        self.directory = directory
        self.plan: dict[str, str] = {}

    def add(self, function: Any, point: str, *arguments: Any) -> None:
        function.enqueue(*arguments)
        self.plan[f"{function.name}:{arguments[0] if arguments else ''}"] = point

    def run(self) -> None:
        (self.directory / "plan.json").write_text(json.dumps(self.plan))
        env = {"DJANGO_SETTINGS_MODULE": "tests.effects.crashing", "DJANGO_JOBS_TEST_CRASHES": str(self.directory)}
        # One job at a time, so that each is killed for its own.
        workers = self.tree.start("--no-scheduler", "--threads", "1", settings={"POLL_INTERVAL": 0.05}, env=env)

        def all_done() -> bool:
            with suppress(OperationalError):  # on SQLite somebody else may write; it is tried again
                self._go_on(workers)
            return self._all_done()

        wait_for(all_done, 60.0, "all jobs are done")
        # The last one may be killed when it is done.
        planned = {name: 1 if point in DONE_BEFORE else 2 for name, point in self.plan.items()}
        wait_for(lambda: self.kills == planned, 10.0, "each job was killed as planned")
        assert workers.stop() == 0

    def _go_on(self, workers: RunWorkers) -> None:
        """Have what was killed run again at once: a job that kills its process is suspected, waits and ends as dead."""
        workers.assert_runs()
        jobs = Job.objects.using(self.tree.alias)
        waiting = jobs.filter(status="ready")
        waiting.filter(parked="suspect").update(parked=None, suspect=False, losses=0)
        waiting.filter(run_at__gt=Now()).update(run_at=Now())
        Pause.objects.using(self.tree.alias).all().delete()
        for job in jobs.filter(status="dead"):
            job.requeue()
        for job in jobs.filter(attempts__gt=0):
            raise AssertionError(job.last_error)

    def _all_done(self) -> bool:
        return not Job.objects.using(self.tree.alias).exclude(status="done").exists()

    @property
    def kills(self) -> dict[str, int]:
        return {name: len(list(self.directory.glob(f"{name}-[01]"))) for name in self.plan}


@pytest.fixture
def killed(tree: Tree, tmp_path: Path) -> Killed:
    return Killed(tree, tmp_path)


def test_a_job_replayed_twice_has_one_effect_by_once(killed: Killed) -> None:
    for point in ONCE:
        killed.add(by_once, point, point)
    killed.run()
    had_by = dict(effects(killed.tree))
    assert len(effects(killed.tree)) == len(ONCE)
    assert had_by == results(killed, by_once), "the result is that of the run which had the effect"
    assert had_by["returned"] < last_runs(killed, by_once)["returned"], "replays read it"
    assert killed.tree.count(type=nothing.name) == len(ONCE)


def test_an_atomic_job_replayed_twice_has_one_effect(killed: Killed) -> None:
    for point in ATOMIC:
        killed.add(by_transaction, point, point)
    killed.run()
    had_by = dict(effects(killed.tree))
    assert len(effects(killed.tree)) == len(ATOMIC)
    assert had_by == results(killed, by_transaction) == last_runs(killed, by_transaction)
    assert killed.tree.count(type=nothing.name) == len(ATOMIC)


def test_what_was_answered_outside_is_not_asked_again_and_what_was_not_is_known_to_be_doubtful(killed: Killed) -> None:
    for point in OUTSIDE:
        killed.add(by_outside, point, point)
    killed.run()
    assert Counter(key for key, _run in effects(killed.tree)) == {
        "before, new": 1,
        "asked, may have happened": 1,
        # The one point at which only the other side can tell: by the key, if it knows keys.
        "called, new": 1,
        "called, may have happened": 2,
        "answered, new": 1,
        "returned, new": 1,
        "stored, new": 1,
    }
    last, found = last_runs(killed, by_outside), results(killed, by_outside)
    assert all(found[point] < last[point] for point in ("answered", "returned")), "replays read it"


def results(killed: Killed, function: Any) -> dict[str, int]:
    return {job.args[0]: int(str(job.result)) for job in killed.tree.jobs(type=function.name)}


def last_runs(killed: Killed, function: Any) -> dict[str, int]:
    # There may be more than three: another job's death can take a run along that was claimed, or whose end is not written.
    return {job.args[0]: job.token for job in killed.tree.jobs(type=function.name)}


class Shop:
    """The example's tables on the jobs' database, with an order for each point."""

    def __init__(self, alias: str, url: str) -> None:
        self.alias = alias
        self.run = DemoRun.objects.using(alias).create(payment_url=url)
        # One that is in the catalogue and in the price list.
        self.vendor = Vendor.objects.using(alias).create(code="0001", name="Fry's Electronics")
        values = {"code": "7778", "name": "Counterfeit flash drive", "sold": 7}
        self.product = Product.objects.using(alias).create(vendor=self.vendor, **values)

    def order(self, number: str) -> int:
        values = {"number": number, "email": "a@example.com", "total_cents": 990}
        order = Order.objects.using(self.alias).create(run=self.run, **values)
        OrderLine.objects.using(self.alias).create(order=order, product=self.product, quantity=1, unit_cents=990)
        return order.pk


@pytest.fixture
def service() -> payments.PaymentService:
    return payments.PaymentService()


@pytest.fixture
def open_shop(killed: Killed, service: payments.PaymentService) -> Iterator[Shop]:
    with payments.served(service) as url:
        yield Shop(killed.tree.alias, url)


def test_orders_are_charged_booked_and_mailed_once_wherever_their_jobs_are_killed(
    killed: Killed, open_shop: Shop, service: payments.PaymentService
) -> None:
    points = {"charge_order": OUTSIDE, "book_payment": ATOMIC, "send_receipt": OUTSIDE}
    numbers = []
    for name, of_type in points.items():
        for point in of_type:
            numbers.append(f"{name[:4]} {point}")
            pk = open_shop.order(numbers[-1])
            shop.charge_order.enqueue(pk)
            killed.plan[f"shop.{name}:{pk}"] = point
    killed.run()
    charged = {number: len(service.charges_of(number)) for number in numbers}
    assert charged == dict.fromkeys(numbers, 1)
    asked_again = {key: calls for key, calls in service.calls.items() if calls != 1}
    assert asked_again == {("char called", "charge:char called"): 3}
    orders = Order.objects.using(open_shop.alias)
    assert orders.exclude(paid_at=None).count() == len(numbers)
    assert {order.payment for order in orders} == {found["charge"] for found in service.charges.values()}
    assert Product.objects.using(open_shop.alias).get().sold == 7 + len(numbers)
    assert killed.tree.count(type="shop.send_receipt") == len(numbers)
    assert Receipt.objects.using(open_shop.alias).count() == len(numbers)
    # A mail server knows no keys, and the shop says that two receipts are better than none.
    mails = mails_by_order(killed.directory / "mail")
    assert mails == dict.fromkeys(numbers, 1) | {"send called": 3}


@on_postgresql
def test_all_other_jobs_of_the_shop_have_one_effect_wherever_they_are_killed(killed: Killed, open_shop: Shop) -> None:
    product = open_shop.product.pk
    for part, point in enumerate(PLAIN):
        killed.add(shop.import_catalogue, point, part, 512)
    for run, point in enumerate(ONCE, 100):
        killed.add(shop.import_prices, point, run, "prices_main.csv")
    for run, point in enumerate(PLAIN, 200):
        killed.add(shop.draw_label, point, run, product)
    for run, point in enumerate(PLAIN, 300):
        killed.add(shop.draw_vendor, point, run, open_shop.vendor.pk)
    killed.run()

    entries = [entry for part in range(3) for entry in catalogue.read_part(part, 512)]
    brought_in = {(entry.code, code) for entry in entries for code, _name in entry.products}
    products = Product.objects.using(open_shop.alias)
    assert set(products.values_list("vendor__code", "code")) == brought_in | {("0001", "7778")}
    assert products.count() == len(brought_in | {("0001", "7778")})
    assert products.get(pk=product).sold == 7, "what is brought in again takes nothing away"
    # Each list ordered one label of each product that it found, besides the labels that were ordered here.
    labels = Counter(tuple(job.args) for job in killed.tree.jobs(type="shop.draw_label"))
    assert set(labels.values()) == {1}
    ordered = Counter(run for run, _product in labels)
    found = {job.args[0]: job.result for job in killed.tree.jobs(type="shop.import_prices")}
    assert ordered == found | dict.fromkeys((200, 201, 202), 1)
    drawn = {job.args[0]: job.result for job in killed.tree.jobs(type="shop.draw_vendor")}
    pictures = Counter(path.parent.name for path in (killed.directory / "media").rglob("*.png"))
    assert pictures == {f"run-{run}": number for run, number in (ordered | drawn).items()}


@on_postgresql
@pytest.mark.parametrize(("number", "point"), list(enumerate(OUTSIDE)), ids=OUTSIDE)
def test_scheduled_jobs_of_the_shop_have_one_effect_wherever_they_are_killed(
    killed: Killed, open_shop: Shop, number: int, point: str
) -> None:
    plain = PLAIN[number % len(PLAIN)]
    killed.add(shop.record_takings, plain)
    killed.add(shop.mail_week, point)
    killed.add(shop.tidy_up, plain)
    killed.run()
    assert Takings.objects.using(open_shop.alias).count() == 1
    mails = "".join(path.read_text() for path in (killed.directory / "mail").glob("*.log"))
    # A mail server knows no keys.
    assert mails.count("Subject: Takings of the week") == (3 if point == "called" else 1)
