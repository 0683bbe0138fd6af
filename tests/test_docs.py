from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from django.core import mail

from django_jobs import registry
from django_jobs.conf import Conf, conf
from django_jobs.context import Context
from django_jobs.engines.base import ClaimOrder, Done, Engine
from django_jobs.models import Job
from django_jobs.workers.runner import Runner

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def pasted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the README's code as the module of an app."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    module = ModuleType("pasted_jobs")
    monkeypatch.setitem(sys.modules, "pasted_jobs", module)
    exec(compile(code, "README.md", "exec"), module.__dict__)  # as a reader would
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


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    documented = re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.M)
    assert sorted(documented) == sorted(item.name.upper() for item in fields(Conf))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
