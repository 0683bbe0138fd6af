"""An app of others that was written for django.tasks, as it comes from the package index: django-pictures."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.files.storage import FileSystemStorage
from django.db import transaction
from PIL import Image

from django_jobs.engines.base import Engine
from django_jobs.models import Job
from tests.processes.common import with_tables
from tests.tasks.common import run

pytestmark = [
    pytest.mark.fast,
    pytest.mark.skipif(django.VERSION < (6, 0), reason="it knows the framework of Django itself only"),
]


@with_tables
def test_an_app_written_for_django_tasks_runs_unchanged(engine: Engine, settings: Any, tmp_path: Path) -> None:
    pytest.importorskip("pictures", reason="the extra test brings it")
    settings.PICTURES = {"QUEUE_NAME": "default"}
    models: Any = importlib.import_module("pictures.models")
    tasks: Any = importlib.import_module("pictures.tasks")
    storage = FileSystemStorage(str(tmp_path))
    Image.new("RGB", (400, 300)).save(tmp_path / "cat.png")
    new = [models.PillowPicture("cat.png", "WEBP", None, storage, width).deconstruct() for width in (100, 200)]
    asked: dict[str, Any] = {
        "storage": ("django.core.files.storage.FileSystemStorage", [str(tmp_path)], {}),
        "file_name": "cat.png",
        "sender": None,
    }
    with transaction.atomic(using=engine.alias):
        tasks.process_picture(**asked, new=new)
    (job,) = Job.objects.using(engine.alias)
    assert job.type == "pictures.tasks.process_picture_with_django_tasks"
    assert run(engine) == ["done"], job.refresh().last_error
    assert sorted(path.name for path in tmp_path.rglob("*.webp")) == ["100w.webp", "200w.webp"]
    tasks.process_picture(**asked, old=new)
    assert run(engine) == ["done"]
    assert list(tmp_path.rglob("*.webp")) == []
