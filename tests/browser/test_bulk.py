"""An act upon 80,000 jobs as a person drives it, while the web server, a process of its own, is killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from selenium.webdriver.common.action_chains import ActionChains

from django_jobs.models import BulkAct, Job
from tests.browser.conftest import PASSWORD
from tests.browser.pages import Pages
from tests.bulk import assert_each_once, fill
from tests.harness import ROOT, Tree, wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
NUMBER = 80_000
# A quarter of them each five seconds.
PER_MINUTE = 240_000


class Web:
    """`runserver`, that can be killed and started again where it was."""

    def __init__(self, tree: Tree, log: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._environment = {**tree.environment({}), "DJANGO_SETTINGS_MODULE": "tests.browser.web_settings"}
        del self._environment["DJANGO_JOBS_TEST_WITHOUT_SHOP"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["-m", "django", "runserver", "--noreload", "--insecure", f"127.0.0.1:{self.port}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command], env=self._environment, cwd=ROOT, stdout=log, stderr=log
            )
        wait_for(self._answers, what="the web server answers")

    def _answers(self) -> bool:
        with socket.socket() as found:
            return found.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture
def tree(transactional_db: None, tmp_path: Path) -> Iterator[Tree]:
    found = Tree("default", tmp_path)
    yield found
    found.end_all()


@pytest.fixture
def web(tree: Tree, tmp_path: Path) -> Iterator[Web]:
    found = Web(tree, tmp_path / "web.log")
    found.start()
    yield found
    found.kill()


@pytest.fixture
def pages(chrome: Chrome, web: Web) -> Pages:
    User.objects.create_superuser("ada", password=PASSWORD)
    chrome.delete_all_cookies()
    chrome.set_window_size(1280, 900)
    found = Pages(chrome, web.url)
    found.log_in("ada", PASSWORD)
    return found


def requeued() -> int:
    return int(Job.objects.filter(queue="unserved", status="ready").count())


def shown(pages: Pages) -> int:
    """Return how many are done by the page."""
    found = re.match(r"([\d,]+)(?: of 25,000 or more)? done", pages.texts("#progress")[0])
    return int(found[1].replace(",", "")) if found else 0


def read() -> BulkAct:
    return BulkAct.objects.get()


def test_80000_dead_jobs_are_requeued_once_though_cancelled_half_way_resumed_and_the_web_server_killed(
    pages: Pages, web: Web, tree: Tree
) -> None:
    fill("default", NUMBER)
    workers = tree.start("--queues", "default", "--threads", "1")
    workers.wait_until_ready()

    pages.jobs(state="dead-letters", error="mail+server")
    pages.click("#bulk-requeue")
    assert "25,000 or more jobs that are failed or dead" in pages.one("#count").text
    assert requeued() == 0
    pages.one("#id_why").send_keys("the mail server is back")
    pages.one("#id_per_minute").send_keys(str(PER_MINUTE))
    here = pages.driver.current_url
    ActionChains(pages.driver).double_click(pages.one("#confirm")).perform()
    wait_for(lambda: pages.driver.current_url != here, what="the page of the act")
    assert BulkAct.objects.count() == LogEntry.objects.count() == 1

    wait_for(lambda: shown(pages) > 0, what="the page shows what is done")
    web.kill()
    wait_for(lambda: "No answer" in pages.texts(".dj-bulk-trouble")[0], what="the page says that nobody answers")
    wait_for(lambda: read().done > 20_000, what="the act goes on by itself")
    web.start()
    wait_for(lambda: shown(pages) > 20_000, what="the page has caught up")

    pages.one("#why").send_keys("lunch")
    pages.click("#cancel")
    wait_for(lambda: not Job.objects.filter(pk=read().job_id, status__in=["ready", "running"]).exists())
    half = read()
    assert (half.state, half.done) == ("cancelled", requeued())
    assert 20_000 < half.done < NUMBER

    pages.click("#resume")
    web.kill()
    wait_for(lambda: read().state == "done", 60.0, "the act is done")
    web.start()
    pages.driver.refresh()
    assert pages.texts("#progress") == ["80,000 done"]
    assert_each_once("default", NUMBER)
    said = [entry.change_message for entry in LogEntry.objects.order_by("pk")]
    assert said == [
        "Requeue, all that were found by (state: dead letters (dead or failed); error: mail server), 25,000 or more jobs: "
        "the mail server is back",
        "Cancelled: lunch",
        "Resumed.",
    ]
    assert workers.stop() == 0
