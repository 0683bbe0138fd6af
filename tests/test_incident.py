"""The rehearsal of the incident, in its short form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from example_project.postgres import find_binaries

ROOT = Path(__file__).parent.parent
KINDS = {"confirm", "newsletter", "read_row", "report"}


@pytest.mark.process
@pytest.mark.skipif(find_binaries() is None, reason="neither an installed PostgreSQL nor the wheel")
def test_the_short_rehearsal_isolates_the_poison_loses_nothing_and_draws_what_it_saw(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.incident", "--short", "--jobs", "1500", "--results", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    found = json.loads((tmp_path / "incident.json").read_text())
    assert found["totals"]["not_ended"] == 0
    assert found["totals"]["failed"] == found["options"]["poisoned"] == 6
    # Three of the six are convicted, each by its second death; then the type is paused, and kills nobody any more.
    assert 6 <= found["deaths"] <= 14
    assert max(second["deaths"] for second in found["seconds"]) == found["deaths"]
    assert {name for second in found["seconds"] for name in second["done"]} == KINDS
    assert found["seconds"][-1]["done"]["report"] == found["options"]["schedules"]
    said = found["sentences"]
    assert "signal 9 (SIGKILL)" in said["a dead row"]
    assert "killed their process within 10 minutes" in said["a row that waits"]
    assert "paused by operator" in said["a newsletter that is held"]
    parts = {part["part"]: part for part in found["parts"]}
    assert parts["newsletter paused"]["done_per_second"]["confirm"] > 15
    assert parts["newsletter paused"]["done_per_second"]["newsletter"] < 30
    assert parts["whole queue paused"]["done_per_second"]["confirm"] < 5
    assert "| herd and poison, nobody acts |" in (tmp_path / "incident.md").read_text()
    drawn = (tmp_path / "incident.svg").read_text()
    assert drawn.count("<polyline") > 20
    assert "poison isolated" in drawn
    with Image.open(tmp_path / "incident.png") as image:
        assert image.width == 1920
