"""The shop's page that enqueues, and the page of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from django.test import Client
from pytest_django.fixtures import Settings

from django_jobs import Context, Snooze
from django_jobs.models import Job
from example_project import settings as project_settings
from example_project.shop import jobs as shop_jobs
from example_project.shop.jobs import LABELS_AT_MOST
from example_project.shop.models import DemoRun, Order, Product, Vendor

pytestmark = pytest.mark.django_db
MARKUP = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def project(settings: Settings) -> None:
    settings.ROOT_URLCONF = "example_project.urls"


@pytest.fixture
def products() -> list[Product]:
    DemoRun.objects.create()
    vendor = Vendor.objects.create(code="046d", name="L")
    many = Vendor.objects.create(code="03f0", name="Many")
    Product.objects.bulk_create(Product(vendor=many, code=f"{n:04x}", name=f"M{n}") for n in range(LABELS_AT_MOST + 1))
    return [Product.objects.create(vendor=vendor, code=f"c52{n}", name=f"R{n}", price_cents=990) for n in range(2)]


def send(client: Client, what: str, number: Any = None, **values: Any) -> Any:
    given = {f"{what}-{name}": value for name, value in values.items()}
    return client.post(f"/enqueue/{what}/", {f"{what}-number": number or uuid4(), **given})


def test_each_form_enqueues_its_job(client: Client, products: list[Product]) -> None:
    send(client, "label", product=products[0].pk)
    send(client, "order", product=products[0].pk, quantity=3)
    many = Vendor.objects.get(name="Many")
    send(client, "vendor", vendor=many.pk)
    send(client, "broken")
    jobs = list(Job.objects.order_by("id").values_list("type", "payload__args"))
    order = Order.objects.get()
    run = DemoRun.objects.get().pk
    assert jobs == [
        ("shop.draw_label", [run, products[0].pk]),
        ("shop.charge_order", [order.pk]),
        ("shop.draw_vendor", [run, many.pk]),
        ("shop.import_prices", [run, "prices_extra.csv"]),
    ]
    assert (order.total_cents, order.lines.get().quantity) == (2970, 3)
    assert client.get("/").content.count(b'class="state ready"') == 4


@pytest.mark.parametrize("what", ["label", "order"])
def test_a_form_that_is_sent_twice_enqueues_one_job(client: Client, products: list[Product], what: str) -> None:
    number = uuid4()
    answers = [send(client, what, number, product=products[0].pk, quantity=1) for _ in range(2)]
    job = Job.objects.get()
    assert [answer.url for answer in answers] == [f"/jobs/{job.pk}/"] * 2
    assert Order.objects.count() == (what == "order")


def test_a_page_that_is_sent_again_with_another_choice_says_what_it_did(
    client: Client, products: list[Product]
) -> None:
    number = uuid4()
    send(client, "label", number, product=products[0].pk)
    answer = send(client, "label", number, product=products[1].pk)
    assert answer.status_code == 409
    assert f"This page has enqueued job {Job.objects.get().pk} already." in answer.content.decode()


@pytest.mark.parametrize("values", [{"product": "x"}, {"product": 0}, {}, {"product": 1, "quantity": 0}])
def test_wrong_values_enqueue_nothing(client: Client, products: list[Product], values: dict[str, Any]) -> None:
    answer = send(client, "order", **values)
    assert (answer.status_code, Job.objects.count(), Order.objects.count()) == (400, 0, 0)
    assert b"errorlist" in answer.content
    assert client.post("/enqueue/nothing/").status_code == 404


def test_another_site_cannot_send_the_form(products: list[Product]) -> None:
    assert send(Client(enforce_csrf_checks=True), "broken").status_code == 403
    assert not Job.objects.exists()


def test_a_shop_without_products_says_how_to_get_them(client: Client) -> None:
    assert b"manage.py demo" in client.get("/").content
    assert send(client, "broken").status_code == 400


def test_a_jobs_page_shows_its_sentence_and_refreshes_until_it_ended(client: Client, products: list[Product]) -> None:
    job = Job.objects.get(pk=send(client, "broken").url.split("/")[2])
    assert job.explain()[:10] in client.get(f"/jobs/{job.pk}/").content.decode()
    assert b"data-ended" not in client.get(f"/jobs/{job.pk}/state/").content
    job.cancel(why=MARKUP)
    page = client.get(f"/jobs/{job.pk}/state/").content.decode()
    assert "data-ended" in page
    assert MARKUP not in page
    assert client.get("/jobs/999999999/").status_code == 404


def test_who_asks_for_german_reads_the_admin_in_german_and_the_shop_in_one_language(
    admin_client: Client, products: list[Product], settings: Settings
) -> None:
    settings.MIDDLEWARE, settings.LANGUAGES = project_settings.MIDDLEWARE, project_settings.LANGUAGES
    job = Job.objects.get(pk=send(admin_client, "broken").url.split("/")[2])
    german, other = {"Accept-Language": "de-CH,de;q=0.9,en;q=0.5"}, {"Accept-Language": "fr"}
    address = f"/admin/django_jobs/job/{job.pk}/change/"
    assert "es läuft kein Worker" in admin_client.get(address, headers=german).content.decode()
    assert "no worker is running" in admin_client.get(address, headers=other).content.decode()
    for part in ("", "state/"):
        assert "no worker is running" in admin_client.get(f"/jobs/{job.pk}/{part}", headers=german).content.decode()
    refused = admin_client.post("/enqueue/order/", {}, headers=german).content.decode()
    assert "This field is required." in refused


def test_a_job_that_succeeded_in_the_end_shows_what_failed_before(client: Client, products: list[Product]) -> None:
    job = Job.objects.get(pk=send(client, "broken").url.split("/")[2])
    Job.objects.update(status="done", attempts=1, last_error="Traceback\nOSError: full", finished_at=Now())
    page = client.get(f"/jobs/{job.pk}/state/").content.decode()
    assert "1 of 3 attempts failed, at last with: <code>OSError: full</code>" in page


def test_a_vendors_labels_are_drawn_with_progress_until_the_job_is_to_stop(
    products: list[Product], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MEDIA_ROOT = tmp_path
    monkeypatch.setattr(shop_jobs, "LABELS_AT_MOST", 3)
    monkeypatch.setattr(shop_jobs, "LABELS_PER_SECOND", 1000.0)
    many = Vendor.objects.get(name="Many")
    told: list[dict[str, Any]] = []

    def context(stop_after: int) -> Context:
        return Context(
            job_id=1,
            attempt=1,
            run=1,
            idempotency_key="k",
            slot=None,
            stop_asked=lambda: len(told) >= stop_after,
            report=told.append,
        )

    assert shop_jobs.draw_vendor(context(9), 7, many.pk) == 3
    assert [(line["done"], line["total"]) for line in told] == [(1, 3), (2, 3), (3, 3)]
    assert len(list(tmp_path.glob("**/labels/run-7/*.png"))) == 3
    told.clear()
    assert isinstance(shop_jobs.draw_vendor(context(2), 7, many.pk), Snooze)
    assert len(told) == 2
