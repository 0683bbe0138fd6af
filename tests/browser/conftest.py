"""A headless Chromium for the tests in this folder, and the site that it looks at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import Permission, User

from tests.browser.pages import Pages

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer
    from selenium.webdriver import Chrome

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Without a sandbox, which root cannot have; the pages are our own.
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars")
HERE = Path(__file__).parent
PASSWORD = "a password for tests"


def missing() -> str:
    """Return what a browser test lacks here, or nothing."""
    if not any(map(shutil.which, BROWSERS)):
        return f"no browser found (looked for {', '.join(BROWSERS)})"
    return "" if shutil.which("chromedriver") else "no chromedriver found"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if reason := skipped_because():
                item.add_marker(pytest.mark.skip(reason=reason))


def skipped_because() -> str:
    lack = "" if os.environ.get("REQUIRE_BROWSER") else missing()
    return lack and f"{lack}; REQUIRE_BROWSER=1 makes this a failure"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [found for found in terminalreporter.stats.get("skipped", []) if "tests/browser/" in found.nodeid]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} browser tests were skipped: {skipped_because()}", yellow=True)


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    assert not missing(), f"REQUIRE_BROWSER is set, and {missing()}"
    driver = started()
    yield driver
    driver.quit()


def started(*more: str) -> Chrome:
    """Return a browser with these flags beside those that all have."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in (*FLAGS, *more):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


@pytest.fixture
def pages(chrome: Chrome, live_server: LiveServer, transactional_db: None) -> Pages:
    """Return the site as somebody sees it who has not logged in yet."""
    chrome.delete_all_cookies()
    chrome.set_window_size(1280, 900)
    return Pages(chrome, live_server.url)


@pytest.fixture
def admin(pages: Pages) -> Pages:
    User.objects.create_superuser("ada", password=PASSWORD)
    pages.log_in("ada", PASSWORD)
    return pages


@pytest.fixture
def viewer(pages: Pages) -> Pages:
    """Return the site as somebody sees it who may look at jobs and workers and do nothing."""
    user = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_job", "view_worker", "view_pause"]))
    pages.log_in("vera", PASSWORD)
    return pages
