"""Nothing that a user may set, give or meet is missing on its page, and no page has what is not there."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

import django_jobs
from django_jobs.decorators import Options, Using

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
COMMANDS = sorted(path.stem for path in (ROOT / "django_jobs" / "management" / "commands").glob("[a-z]*.py"))
DJANGOS = BaseCommand().create_parser("manage.py", "any")


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the long options of a parser but those that all of Django's commands, or all verbs, have."""
    named = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    djangos = {name for action in DJANGOS._actions for name in action.option_strings}
    return named - {"--json"} - djangos


def given() -> dict[str, set[str]]:
    """Return what each command, or each verb of one that has verbs, takes."""
    found: dict[str, set[str]] = {}
    for name in COMMANDS:
        parser = load_command_class("django_jobs", name).create_parser("manage.py", name)
        verbs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        found |= {f"{name} {verb}": options(of) for some in verbs for verb, of in some.choices.items()}
        if not verbs:
            found[name] = options(parser)
    return found


@pytest.mark.fast
def test_every_option_of_every_command_is_documented() -> None:
    page = (DOCS / "commands.md").read_text()
    commands, _, meanings = page.partition("| option | means |")
    rows = re.findall(r"^\| `([a-z]+(?: [a-z-]+)?)[^`]*` \| (.*?) \|", commands, re.M)
    assert {name: set(re.findall(r"`(--[a-z-]+)", cell)) for name, cell in rows} == given()
    told = set(re.findall(r"^\| `(--[a-z-]+)`", meanings, re.M))
    assert told == {name for names in given().values() for name in names if not re.search("-(warning|critical)$", name)}


@pytest.mark.fast
def test_every_command_that_a_page_names_is_there_and_takes_the_options_that_it_is_given() -> None:
    known, calls = given(), []
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        found = re.findall(r"(?:`|manage\.py )((jobs [a-z-]+|runworkers|runscheduler)\b[^`\n]*)", page.read_text())
        calls += [(page.name, name, set(re.findall(r" (--[a-z-]+)", command)) - {"--json"}) for command, name in found]
    wrong = [(page, name, options) for page, name, options in calls if name not in known or options - known[name]]
    assert (wrong, len(calls) > 100) == ([], True)


@pytest.mark.fast
def test_every_option_of_a_job_is_documented() -> None:
    items = re.findall(r"^\* (`.*?)$", (DOCS / "writing-jobs.md").read_text(), re.M)
    named = {name for item in items for name in re.findall(r"`(\w+)`", item)}
    assert named >= {*Options.__annotations__, "takes_context"}


@pytest.mark.fast
def test_every_option_of_an_enqueue_is_documented() -> None:
    table = (DOCS / "enqueueing.md").read_text().partition("| option | |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
    assert named == set(Using.__annotations__)


@pytest.mark.fast
def test_everything_that_the_package_offers_is_on_some_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))
    missing = [name for name in django_jobs.__all__ if not re.search(rf"(?<!\w){name}(?!\w)", pages)]
    assert (missing, len(django_jobs.__all__) > 20) == ([], True)
