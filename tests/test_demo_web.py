"""`manage.py demo` with its web server, as a person at a terminal uses it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from django.core.management import CommandError

from example_project import postgres
from example_project.shop.demo import web
from tests.harness import wait_for

ROOT = Path(__file__).resolve().parents[1]
OURS = ("EXAMPLE_", "DJANGO_", "DATABASE_URL")
CTRL_C = b"\x03"


class Terminal:
    """A pseudo-terminal of its own in which the demo is the foreground process."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        command = [sys.executable, str(ROOT / "example_project" / "manage.py"), "demo", *words]
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background ignores
            os.execvpe(command[0], command, clean | environment)
        self.text = ""
        self.code: int | None = None

    def read_until(self, pattern: str, within: float) -> re.Match[str]:
        until = time.monotonic() + within
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < until, f"no {pattern!r} in:\n{self.text}"
            assert self._read(), f"the demo ended:\n{self.text}"
        return found

    def _read(self) -> bool:
        if select.select([self._terminal], [], [], 0.1)[0]:
            try:
                self.text += os.read(self._terminal, 65536).decode(errors="replace").replace("\r\n", "\n")
            except OSError:  # what Linux says when the last process of the terminal is gone
                return False
        return True

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        until = time.monotonic() + 40
        while self._read():
            assert time.monotonic() < until, f"the demo goes on:\n{self.text}"
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)


def tree(pid: int) -> list[int]:
    """Return the pids of a process and of all that it and its children started."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


class Visitor:
    """A browser without pictures: cookies, forms with their token."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> str:
        with self._opener.open(self.url + path, timeout=20) as answer:
            self.at = answer.url.removeprefix(self.url)
            return str(answer.read().decode())

    def send(self, path: str, values: dict[str, str]) -> str:
        with self._opener.open(self.url + path, urlencode(values).encode(), timeout=20) as answer:
            self.at = answer.url.removeprefix(self.url)
            return str(answer.read().decode())

    def hidden(self, page: str, form: str = "") -> dict[str, str]:
        """Return the hidden fields of a form of the page."""
        start = page.index(f'id="{form}"') if form else 0
        part = page[start : page.index("</form>", start)]
        found = [re.findall(r'(name|value)="([^"]*)"', tag) for tag in re.findall(r"<input[^>]*hidden[^>]*>", part)]
        return {dict(pairs)["name"]: dict(pairs).get("value", "") for pairs in found}


@contextmanager
def demo(engine: str, var: Path, *words: str) -> Iterator[Terminal]:
    with postgres.temporary() if engine == "postgresql" else nullcontext() as server:
        choice = {"DATABASE_URL": server.url} if server else {"EXAMPLE_DATABASE": "sqlite"}
        terminal = Terminal({**choice, "EXAMPLE_VAR": str(var)}, *words)
        try:
            yield terminal
        finally:
            terminal.close()


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_the_demo_serves_the_shop_and_the_admin_until_ctrl_c_and_leaves_no_process(engine: str, tmp_path: Path) -> None:
    with demo(engine, tmp_path) as terminal:
        admin = terminal.read_until(r"The admin: +(http://127\.0\.0\.1:\d+)/admin/  user (\w+), password (\S+)", 100)
        url, user, password = admin.groups()
        terminal.read_until("Ctrl-C ends them", 10)
        pids = tree(terminal.pid)
        visitor = Visitor(url)
        # The shop enqueues, and the workers do it.
        page = visitor.get("/")
        product = re.findall(r'<option value="(\d+)"', page)[0]
        visitor.send(
            "/enqueue/order/", visitor.hidden(page, "order") | {"order-product": product, "order-quantity": "2"}
        )
        job = visitor.at
        assert re.fullmatch(r"/jobs/\d+/", job)
        state = wait_for(lambda: _ended(visitor.get(f"{job}state/")), 30, "the order is charged")
        assert "ch_" in state
        # The admin lets its user in, with its style sheets.
        login = visitor.get("/admin/login/")
        sheet = re.findall(r'href="(/static/admin/css/base.css)"', login)[0]
        assert "--primary" in visitor.get(sheet)
        told = {"username": user, "password": password, "next": "/admin/django_jobs/job/"}
        jobs = visitor.send("/admin/login/", visitor.hidden(login) | told)
        assert visitor.at == "/admin/django_jobs/job/"
        assert "shop.charge_order" in jobs
        terminal.press(CTRL_C)
        assert terminal.end() == 0
        assert "Stopped. The tables stay" in terminal.text
        assert "Traceback" not in terminal.text
        assert len(pids) > 4
        wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], 5, f"all of {pids} are gone")


def _ended(state: str) -> str:
    return state if "data-ended" in state else ""


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_web_server_takes_any_port_where_the_usual_one_is_taken_and_no_other_than_the_asked_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((address, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"The port {port} of 127.0.0.1 cannot be had") as refusal:
            web.opened(port)
        assert refusal.value.returncode == 2
        monkeypatch.setattr(web, "PORT", port)
        with web.opened(None) as found, found.serving():
            assert found.server_port not in (0, port)
    for impossible in (99_999, -1):
        with pytest.raises(CommandError, match="cannot be had"):
            web.opened(impossible)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_another_process_bound_too_is_not_lost_during_the_round(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((address, 0))
        monkeypatch.setattr(web, "PORT", other.getsockname()[1])
        with web.opened(None) as server:
            with pytest.raises(OSError, match="in use"):
                other.listen()
            with server.serving(), socket.create_connection(("127.0.0.1", server.server_port), 5):
                pass


def test_a_port_that_cannot_be_had_is_said_before_the_round(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [sys.executable, str(ROOT / "example_project/manage.py"), "demo", "--port", str(taken.getsockname()[1])],
            env=clean | {"EXAMPLE_DATABASE": "sqlite", "EXAMPLE_VAR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "cannot be had" in done.stderr
    assert "Run 1" not in done.stdout
