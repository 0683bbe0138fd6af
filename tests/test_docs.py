from __future__ import annotations

import inspect
import re
import subprocess
import sys
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.db import connections
from django.dispatch import Signal
from django.utils.translation import get_language

from django_jobs import checks, registry, schedule, signals, testing
from django_jobs.conf import Conf, conf
from django_jobs.context import Context
from django_jobs.engines.base import Engine
from django_jobs.engines.values import ClaimOrder, Done
from django_jobs.models import Job
from django_jobs.schedules import code
from django_jobs.workers.runner import Runner
from example_project.shop import payments
from example_project.shop.models import DemoRun, Order, Product, Vendor
from tests.engines.common import on_postgresql

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


def pasted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the README's code as the module of an app."""
    (text,) = blocks("README.md", "python")
    return run(text, "README.md", monkeypatch)


def run(text: str, page: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(code, "_schedules", {})
    module = ModuleType("pasted_jobs")
    monkeypatch.setitem(sys.modules, "pasted_jobs", module)
    exec(compile(text, page, "exec"), module.__dict__)  # as a reader would
    return module


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_the_code_of_the_readme_works_as_pasted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pasted(monkeypatch)
    for _ in range(2):
        module.order_paid(42, "ada@example.com")
    receipts = Job.objects.using(engine.alias).filter(idempotency_key="receipt:42")
    assert (receipts.count(), Job.objects.using(engine.alias).count()) == (1, 3)
    order = ClaimOrder(locked_by="w:1", lease=30, limit=9, queues=None, types=(module.send_receipt.name,))
    (claimed,) = engine.claim(order).jobs
    context = Context(
        job_id=claimed.id,
        attempt=1,
        run=1,
        idempotency_key="receipt:42",
        slot=None,
        stop_asked=lambda: False,
        report=lambda progress: None,
    )
    ended = Runner(engine, conf(), "host:1").run(claimed, context)
    assert isinstance(ended, Done), ended.error
    assert ended == Done(claimed.run, '"attempt 1 reached ada@example.com"')
    assert [message.to for message in mail.outbox] == [["ada@example.com"]]


@pytest.mark.parametrize(("page", "names"), [
    ("README.md", ["pasted_jobs.remind"]),
    ("docs/schedules.md", ["stock.nightly", "stock.often"]),
])  # fmt: skip
def test_the_schedules_of_the_pages_can_be_used(page: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks(page, "python")
    run(text, page, monkeypatch)
    assert [found.name for found in code.schedules()] == names
    assert checks.check_schedules(None) == checks.check_schedule_names(None) == []


def test_every_option_of_a_schedule_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "schedules.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \|$", page.partition("## Expressions")[0], re.M))
    options = [item for item in inspect.signature(schedule).parameters.values() if item.kind is item.KEYWORD_ONLY]
    assert list(documented) == [item.name for item in options]
    # Where the default is what another place says, words say which.
    said = {name: text.strip("`") for name, text in documented.items() if text.startswith("`")}
    said.pop("missed_grace")
    assert said == {item.name: repr(item.default).replace("'", '"') for item in options if item.name in said}
    assert {item.default for item in options if item.name not in said} == {None, ""}


@pytest.mark.django_db(databases="__all__")
def test_the_statements_of_the_page_on_schedules_can_be_pasted(engine: Engine) -> None:
    (text,) = blocks("docs/schedules.md", "sql")
    statements = text.strip().removesuffix(";").split(";")
    with connections[engine.alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            cursor.fetchall()
    assert len(statements) == 3


@on_postgresql
@pytest.mark.django_db(databases="__all__")
def test_the_settings_of_a_role_on_the_page_on_operating_can_be_pasted(engine: Engine) -> None:
    (text,) = blocks("docs/operating.md", "sql")
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("CREATE ROLE workers")
        cursor.execute(text)
        cursor.execute("SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'workers'::regrole")
        assert len(cursor.fetchone()[0]) == text.count("ALTER ROLE workers SET") == 5


@pytest.mark.django_db(transaction=True)
def test_the_code_of_the_page_on_effects_works_as_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop", "shop.models", "shop.payments"):
        monkeypatch.setitem(sys.modules, name, import_module(f"example_project.{name}"))
    (text,) = blocks("docs/effects.md", "python")
    module = run(text, "docs/effects.md", monkeypatch)
    product = Product.objects.create(vendor=Vendor.objects.create(code="046d"), code="c52b")
    service = payments.PaymentService()
    with payments.served(service) as url:
        order = Order.objects.create(run=DemoRun.objects.create(payment_url=url), number="1-001", total_cents=990)
        order.lines.create(product=product, quantity=1, unit_cents=990)
        assert [module.charge(order.pk) for _ in range(2)] == ["ch_00001"] * 2
    assert service.calls == {("1-001", "charge:1-001"): 1}
    assert [module.count_gifts("spring", product.pk) for _ in range(2)] == [1, 1]
    assert module.book.job_type.atomic
    assert list(Job.objects.values_list("type", "payload__args")) == [(module.book.name, [order.pk, "ch_00001"])]
    module.book(order.pk, "ch_00001")
    product.refresh_from_db()
    assert (product.sold, Job.objects.filter(type=module.thank.name).count()) == (2, 1)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Give the jobs of the page on testing as the module that the page says they are."""
    package = ModuleType("shop")
    package.models = import_module("example_project.shop.models")  # type: ignore[attr-defined]
    jobs = package.jobs = ModuleType("shop.jobs")  # type: ignore[attr-defined]
    for module in (package, package.models, jobs):
        monkeypatch.setitem(sys.modules, module.__name__.replace("example_project.", ""), module)
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    exec(compile(blocks("docs/testing.md", "python")[0], "docs/testing.md", "exec"), jobs.__dict__)
    return jobs


def test_the_unittests_of_the_page_on_testing_pass_as_pasted(
    django_db_setup: None, django_db_blocker: Any, shop: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = run(blocks("docs/testing.md", "python")[1], "docs/testing.md", monkeypatch).SaleTests
    result = unittest.TestResult()
    with django_db_blocker.unblock():
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert (result.testsRun, result.errors, result.failures) == (4, [], [])


@pytest.mark.django_db(databases="__all__")
def test_the_pytests_of_the_page_on_testing_pass_as_pasted(
    engine: Engine, shop: ModuleType, mailoutbox: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = run(blocks("docs/testing.md", "python")[2], "docs/testing.md", monkeypatch)
    module.test_a_receipt_is_sent(testing, mailoutbox)
    assert len(mailoutbox) == 1


def test_every_option_of_the_test_kit_is_documented() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", page, re.M))
    options = inspect.signature(testing.run_jobs).parameters
    assert documented == {name: "0" if name == "ahead" else repr(item.default) for name, item in options.items()}
    assert [name for name in testing.__all__ if f"{name}" not in page] == []


def test_the_code_of_the_recipes_around_a_run_works_as_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[object] = []

    @contextmanager
    def enter(*given: object, **named: object) -> Iterator[None]:
        entered.append((*given, named, get_language()))
        yield

    for name, function in (("django_tenants.utils", "schema_context"), ("structlog.contextvars", "bound_contextvars")):
        module = ModuleType(name)
        setattr(module, function, enter)
        monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType(name.partition(".")[0]))
        monkeypatch.setitem(sys.modules, name, module)
    text = blocks("docs/writing-jobs.md", "python")[-1]
    around = run(text, "docs/writing-jobs.md", monkeypatch).around
    context = Context(
        job_id=3,
        attempt=1,
        run=1,
        idempotency_key="",
        slot=None,
        stop_asked=lambda: False,
        report=lambda progress: None,
        job=SimpleNamespace(type="a", queue="mail", arguments={"tenant": "acme", "language": "de"}),
    )
    with around(context):
        entered.append(get_language())
    assert entered == [("acme", {}, "en-us"), ({"job_id": 3, "job_type": "a"}, "de"), "de"]
    with around(replace(context, job=None)):
        assert get_language() == "en-us"


def test_the_logging_of_the_page_on_monitoring_works_as_pasted() -> None:
    text = blocks("docs/monitoring.md", "python")[-1]
    code = f"{text}\nimport logging, logging.config\nlogging.config.dictConfig(LOGGING)\nlogging.warning('said')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "WARNING root [job - -] said\n"


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    documented = re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.M)
    assert sorted(documented) == sorted(item.name.upper() for item in fields(Conf))


def test_every_signal_is_documented_and_every_documented_one_exists() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "signals.md").read_text(), re.M)
    assert documented == [name for name, value in vars(signals).items() if isinstance(value, Signal)]


def anchors(page: Path) -> set[str]:
    """Return what a link into a page may name, as a code host makes it of the headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return made | set(re.findall(r'<a id="([\w-]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target
            assert not anchor or anchor in anchors(page.parent / target if target else page), (target, anchor)


@pytest.mark.fast
def test_every_test_that_a_page_names_exists() -> None:
    named = {found for page in PAGES for found in re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", page.read_text())}
    assert len(named) > 50
    missing = [(path, name) for path, name in named if f"\ndef {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def medians(page: str, name: str) -> set[str]:
    """Return the figures that a page has of a queue, without their spread."""
    rows = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", (ROOT / page).read_text(), re.M)
    return {cell.partition(" (")[0] for row in rows for cell in row.split(" | ")}


@pytest.mark.fast
def test_the_figures_of_the_comparison_are_those_of_the_page_on_performance() -> None:
    table = (ROOT / "docs" / "compared.md").read_text().partition("## Measured")[2]
    names = [name for name in re.findall(r"^\| ([^|]+) \|", table, re.M) if name.strip("-")]
    assert len(names) == 5
    wrong = {name: medians("docs/compared.md", name) - medians("docs/performance.md", name) for name in names[1:]}
    assert [name for name, figures in wrong.items() if figures] == []
