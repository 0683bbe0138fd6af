"""Every block of Python on a page is run by a test; those of README, schedules, effects and quickstart by tests of their own."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError
from django.utils.module_loading import import_string

from django_jobs import Backoff, Cancel, Context, Fail, Retry, Snooze, conf, job, registry
from django_jobs.models import Job
from django_jobs.outcomes import Outcome
from django_jobs.signals import job_dead
from example_project.shop.models import DemoRun, Order

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.S | re.M)
NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\n```.*?\n```", re.S)


@job
def send_receipt(order_id: int, copy: bool = False) -> None: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what runs the blocks of a page one after the other, as one module, with the names that they take for given."""

    def of(page: str, **names: Any) -> Any:
        monkeypatch.setattr(registry, "_types", dict(registry._types))
        module = ModuleType("pasted_jobs")
        monkeypatch.setitem(sys.modules, "pasted_jobs", module)
        module.__dict__.update(names)
        found = FENCED.findall(NOT_RUN.sub("", (ROOT / page).read_text()))
        for indent, _, text in (block for block in found if block[1] == "python"):
            for part in ast.parse(re.sub(f"^{indent}", "", text, flags=re.M)).body:
                _run(part, page, module)
        return module

    return of


def _run(part: ast.stmt, page: str, module: ModuleType) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(ast.Module([part], []), page, "exec", flags=flags, dont_inherit=True)
    awaited = eval(code, module.__dict__)
    if awaited is not None:

        async def wait() -> None:
            await awaited

        async_to_sync(wait)()


def context(attempt: int) -> Context:
    return Context(
        job_id=1,
        attempt=attempt,
        run=attempt,
        idempotency_key="job:1",
        slot=None,
        stop_asked=lambda: False,
        report=lambda progress: None,
    )


@pytest.mark.django_db(transaction=True)
def test_the_code_of_the_page_on_enqueueing_works_as_pasted(run: Callable[..., Any]) -> None:
    demo = DemoRun.objects.create(payment_url="")
    orders = [Order.objects.create(run=demo, number=f"1-{number}", total_cents=1) for number in range(2)]
    paid = Order.objects.values_list("pk", flat=True)
    run("docs/enqueueing.md", send_receipt=send_receipt, paid=paid, Order=Order, timedelta=timedelta)
    stored = Job.objects.filter(type=send_receipt.name)
    assert stored.filter(queue="bulk").count() == 2
    called = [(42,)] * 3 + [(1,), (2,)] + [(order.pk,) for order in orders] * 3
    assert sorted(tuple(found.payload["args"]) for found in stored) == sorted(called)


def beside(monkeypatch: pytest.MonkeyPatch, name: str, **values: Any) -> None:
    """Have a module be there that a page imports."""
    package, _, inner = name.partition(".")
    for each in filter(None, (package, inner and name)):
        monkeypatch.setitem(sys.modules, each, ModuleType(each))
    vars(sys.modules[name]).update(values)


def test_the_code_of_the_page_on_signals_works_as_pasted(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(monkeypatch, "shop.jobs", send_receipt=send_receipt)
    module = run("docs/signals.md")
    assert job_dead.disconnect(module.tell_support, sender=send_receipt.job_type)


def test_the_code_of_the_page_on_writing_jobs_works_as_pasted(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(monkeypatch, "django_tenants.utils", schema_context=None)
    beside(monkeypatch, "structlog.contextvars", bound_contextvars=None)
    given = {"job": job, "Backoff": Backoff, "Context": Context, "ValidationError": ValidationError}
    module = run("docs/writing-jobs.md", **given)
    assert (module.send_receipt.name, module.book.job_type.atomic) == ("shop.receipt", True)


def test_the_code_of_the_page_on_retries_ends_as_it_says(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(status: int, attempt: int = 1) -> tuple[type, object]:
        answer = SimpleNamespace(status_code=status, headers={"Retry-After": "7"}, text="1.08")
        requests.get = lambda url, timeout: answer  # type: ignore[attr-defined]
        said = module.fetch_rates(context(attempt), "EUR")
        return type(said), getattr(said, "delay", None) if isinstance(said, Outcome) else said

    requests = ModuleType("requests")
    monkeypatch.setitem(sys.modules, "requests", requests)
    module = run("docs/retries.md")
    assert [answered(status) for status in (200, 404, 410, 429, 503)] == [
        (str, "1.08"),
        (Fail, None),
        (Cancel, None),
        (Retry, 7.0),
        (Snooze, 60.0),
    ]
    assert answered(503, attempt=2) == (str, "1.08")


def test_the_waits_of_the_page_on_retries_are_those_of_the_defaults() -> None:
    page = (ROOT / "docs" / "retries.md").read_text()
    (row,) = re.findall(r"^\| at most, s \| (.*) \|$", page, re.M)
    settings = conf.conf()
    waits = [settings.backoff.ceiling(number) for number in range(1, settings.max_attempts)]
    assert [float(cell) for cell in row.split(" | ")] == [*waits, sum(waits)]


@pytest.mark.django_db
def test_the_code_of_the_page_on_lanes_works_as_pasted(run: Callable[..., Any]) -> None:
    module = run("docs/lanes.md")
    module.asked_by_a_person(2026)
    assert Job.objects.values_list("queue", "priority", "payload__args").get() == ("reports", 20, [2026])


def test_the_code_of_the_page_on_monitoring_works_as_pasted(run: Callable[..., Any]) -> None:
    (mounted,) = run("docs/monitoring.md").urlpatterns
    assert [bool(mounted.resolve(f"jobs/{name}/")) for name in ("health", "metrics")] == [True, True]


def test_the_code_of_the_page_on_deployment_can_be_used(run: Callable[..., Any]) -> None:
    assert conf.problems(run("docs/deployment.md").DJANGO_JOBS) == []


def test_the_code_of_the_page_on_databases_can_be_used(run: Callable[..., Any]) -> None:
    module = run("docs/databases.md")
    assert module.DJANGO_JOBS.keys() == {"DATABASE"} <= {field.name.upper() for field in fields(conf.Conf)}
    assert module.DJANGO_JOBS["DATABASE"] in module.DATABASES
    assert [import_string(path).__name__ for path in module.DATABASE_ROUTERS] == ["JobsRouter"]


@pytest.mark.django_db
def test_the_code_of_the_page_on_moving_works_as_pasted(run: Callable[..., Any]) -> None:
    run("docs/moving.md")
    found = Job.objects.get()
    assert (found.queue, found.priority, found.max_attempts, found.payload["args"]) == ("mail", 8, 6, [42])


# Run command by command: by .ci/run, and by tests/test_docs_quickstart.py.
CONSOLES = {("README.md", "console"), ("docs/quickstart.md", "console")}


@pytest.mark.fast
def test_every_block_that_is_no_python_is_run_or_looked_at_as_well() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    found = {
        (str(page.relative_to(ROOT)), language) for page in PAGES for _, language, _ in FENCED.findall(page.read_text())
    }
    others = {(name, language) for name, language in found if language not in ("python", "")}
    assert {pair for pair in others if 'blocks("{}", "{}")'.format(*pair) not in tests} == CONSOLES


@pytest.mark.fast
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_is_fenced_and_named_in_a_test_or_marked(page: Path) -> None:
    text = page.read_text()
    unmarked = re.findall(r"^ *```python\n", NOT_RUN.sub("", text), re.M)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    name = str(page.relative_to(ROOT))
    assert not unmarked or f'"{name}"' in tests or f'"{page.name}"' in tests, (
        "run it in a test, or <!-- not run: why -->"
    )
    indented = re.findall(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", FENCED.sub("", text))
    assert [block for block in indented if is_python(block)] == [], "fence it: ```python"


def is_python(block: str) -> bool:
    try:
        return "(" in block and bool(ast.parse("if True:\n" + block))
    except SyntaxError:
        return False
