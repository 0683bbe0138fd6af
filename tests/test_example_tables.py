from __future__ import annotations

from pathlib import Path

import pytest

from example_project import database
from example_project.shop.demo import tables

pytestmark = pytest.mark.django_db


def test_a_migration_that_changed_and_kept_all_names_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(database, "VAR", tmp_path)
    monkeypatch.setattr(database, "chosen", database.Choice(kind="embedded", url=""))
    made_by = tmp_path / "made-by-postgresql"
    made_by.write_text(tables._fingerprint())
    tables.prepare(print)
    assert tables.differences() == []
    made_by.write_text("of another time")
    assert tables.differences() == ["its migrations were changed since"]
    monkeypatch.setattr(database, "chosen", database.Choice(kind="given", url=""))
    assert tables.differences() == []
