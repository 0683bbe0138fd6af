"""The site that mkdocs makes of the pages, and the examples for Kubernetes; needs the extra `docs`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
THERE = find_spec("mkdocs") is not None
pytestmark = pytest.mark.skipif(
    not THERE and not os.environ.get("REQUIRE_DOCS"),
    reason="the extra docs is not installed; REQUIRE_DOCS=1 makes this a failure",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the site, built with each warning as an error."""
    found = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(found)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return found


def article(site: Path, page: Path) -> str:
    name = "index" if page.stem == "README" else page.stem
    return re.findall(r"<article.*?</article>", (site / f"{name}.html").read_text(), re.S)[0]  # type: ignore[no-any-return]


def test_nothing_of_the_site_comes_from_another_host(site: Path) -> None:
    pages = "".join(path.read_text() for path in site.glob("*.html"))
    loaded = re.findall(r"<(?:script|img|iframe)[^>]*src=\"([^\"]*)|<link[^>]*href=\"([^\"]*)", pages)
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert len(loaded) > 50
    assert [pair for pair in loaded if re.match(r"(https?:)?//", "".join(pair))] == []
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*|@import[^;]*", styles) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_reads_as_it_does_on_a_code_host(site: Path, page: Path) -> None:
    def counted(text: str) -> dict[str, int]:
        return {
            tag: len(re.findall(f"<{tag}[ >]", text)) for tag in ("ul", "ol", "li", "table", "tr", "pre", "h2", "h3")
        }

    hosted = MarkdownIt("commonmark").enable("table").render(page.read_text())
    assert counted(article(site, page)) == counted(hosted)


def test_every_page_is_in_the_navigation(site: Path) -> None:
    menu = (site / "index.html").read_text()
    assert [page.stem for page in PAGES if page.stem != "README" and f'href="{page.stem}.html"' not in menu] == []
