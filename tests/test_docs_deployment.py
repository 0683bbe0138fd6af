"""The files of docs/deployment/, and what docs/deployment.md says of a container and of connections."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.db import connections

from django_jobs.conf import Conf
from tests.app.jobs import wait_for_file
from tests.app.process_jobs import leave_orphans
from tests.harness import Tree, wait_for
from tests.monitoring.common import Exited
from tests.processes.common import effects, on_postgresql, with_processes

FILES = Path(__file__).parent.parent / "docs" / "deployment"
# A PID namespace with a /proc of its own, as a container has.
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]


def may_make_namespaces() -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode


class Contained(Tree):
    """Starts each `runworkers` as the process with the number 1."""

    def command(self, *arguments: str) -> Sequence[str]:
        return [*NAMESPACE, "--kill-child", *super().command(*arguments)]


def sessions() -> dict[str, int]:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT split_part(application_name, ':', 2), count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'django\\_jobs:%' GROUP BY 1"
        )
        return dict(cursor.fetchall())


def children(pid: int) -> list[int]:
    """Return the children of a process, those that ended and were not waited for included."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def healthy(check: object) -> bool:
    """Tell what a container with the health check of the page comes to when `jobs check` has this exit code."""
    (command,) = re.findall(r"^HEALTHCHECK .* CMD (.*)$", (FILES / "Dockerfile").read_text(), re.M)
    shell = command.replace("python manage.py jobs check", f"(exit {check})")
    assert shell != command
    return subprocess.run(["sh", "-c", shell], check=False).returncode == 0


class TestContainer:
    pytestmark = [
        *with_processes,
        on_postgresql,
        pytest.mark.skipif(not may_make_namespaces(), reason="no PID namespace can be made here"),
    ]

    def test_as_the_first_process_it_stops_in_order_and_leaves_nothing_with_the_connections_of_the_page(
        self, vendor: str, transactional_db: None, tmp_path: Path
    ) -> None:
        tree, file = Contained("default", tmp_path), tmp_path / "go on"
        try:
            leave_orphans.enqueue(2)  # which come to the process with the number 1
            for number in range(3):
                wait_for_file.enqueue(str(number), str(file))
            workers = tree.start("--processes", "1", "--threads", "3")
            (first,) = wait_for(lambda: children(workers.pid), what="the first process")
            wait_for(lambda: len(effects(tree)) == 3, what="all threads are busy")
            threads, processes = 3, 1
            held = {"worker": processes * (threads + 2), "supervisor": 1, "scheduler": 1, "listener": 1}
            wait_for(lambda: sessions() in (held, {**held, "maintenance": 1}), 10, "the connections of the page")
            wait_for(lambda: len(children(first)) == 1, what="what a handler left has been waited for")
            assert healthy(Exited("check").code)
            os.kill(first, signal.SIGTERM)
            wait_for(lambda: "SIGTERM" in workers.log, what="it was told")
            file.touch()
            assert workers.wait() == 0, workers.log
            assert (tree.count(status="done"), len(effects(tree)), sessions()) == (4, 6, {})
            assert not healthy(Exited("check").code), "nobody runs the jobs"
        finally:
            tree.end_all()


def test_the_container_runs_the_workers_without_a_shell() -> None:
    text = (FILES / "Dockerfile").read_text()
    (command,) = re.findall(r"^CMD (.*)$", text, re.M)
    assert ast.literal_eval(command) == ["python", "manage.py", "runworkers"]


def test_the_health_check_calls_a_container_unhealthy_when_the_state_is_critical_or_unknown() -> None:
    assert [healthy(code) for code in range(4)] == [True, True, False, False]


def test_every_example_waits_longer_for_the_end_than_runs_may_take_for_it() -> None:
    patience = {
        "compose.yaml": r"stop_grace_period: (\d+)s",
        "kubernetes.yaml": r"terminationGracePeriodSeconds: (\d+)",
        "runworkers.service": r"TimeoutStopSec=(\d+)",
    }
    for name, pattern in patience.items():
        (seconds,) = re.findall(pattern, (FILES / name).read_text())
        assert float(seconds) >= Conf().shutdown_grace + 10, name


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "runworkers.service"
    unit.write_text((FILES / unit.name).read_text().replace("/srv/mysite/.venv/bin/python", sys.executable))
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=30, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.skipif(
    find_spec("kubernetes_validate") is None and not os.environ.get("REQUIRE_DOCS"),
    reason="the extra docs is not installed; REQUIRE_DOCS=1 makes this a failure",
)
def test_kubernetes_takes_the_resources() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "--strict", FILES / "kubernetes.yaml"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (said.returncode, (said.stdout + said.stderr).count(" passed ")) == (0, 3), said.stdout + said.stderr
