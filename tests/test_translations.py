"""The words of the pages in other languages: each language that there is has them all."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).parent.parent / "django_jobs"
CATALOGS = sorted(PACKAGE.glob("locale/*/LC_MESSAGES/django.po"))
CALLS = {"_": 1, "gettext": 1, "gettext_lazy": 1, "ngettext": 2, "ngettext_lazy": 2}
TEXT = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
IN_TEMPLATE = re.compile(rf"\b(?:n?gettext|_)\(\s*u?{TEXT}(?:\s*,\s*u?{TEXT})?", re.S)
# What stands for a value: %(name)s, %d, {}, and words that are code.
PLACE = re.compile(r"%(?:\(\w+\))?[sdr]|%%|\{\w*\}|</?\w+>|`[^`]+`")

pytestmark = [pytest.mark.fast, pytest.mark.parametrize("catalog", CATALOGS, ids=lambda path: path.parts[-3])]


@dataclass(slots=True)
class Entry:
    flags: str
    texts: dict[str, str]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self.texts[key] for key in ("msgid", "msgid_plural") if key in self.texts)

    @property
    def translations(self) -> list[str]:
        return [text for key, text in self.texts.items() if key.startswith("msgstr")]


def entries(catalog: Path) -> list[Entry]:
    """Return what a .po file has, without its head."""
    found: list[Entry] = []
    for block in re.split(r"\n\s*\n", catalog.read_text()):
        flags = " ".join(re.findall(r"^#,(.*)$", block, re.M))
        parts = re.findall(r'^(msg\w+(?:\[\d\])?) ((?:".*"\n?)+)', block, re.M)
        texts = {key: "".join(map(ast.literal_eval, lines.strip().split("\n"))) for key, lines in parts}
        if texts.get("msgid"):
            found.append(Entry(flags, texts))
    return found


def said() -> set[tuple[str, ...]]:
    """Return all texts that the package would have translated: in its code, and in its templates."""
    found: set[tuple[str, ...]] = set()
    for path in PACKAGE.rglob("*.py"):
        found.update(_in_code(ast.parse(path.read_text())))
    for path in (PACKAGE / "templates").rglob("*.html"):
        for texts in IN_TEMPLATE.findall(templatize(path.read_text())):
            found.add(tuple(ast.literal_eval(text) for text in texts if text))
    return found


def _in_code(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := getattr(node.func, "id", "")) in CALLS:
            texts = [given.value for given in node.args[: CALLS[name]] if isinstance(given, ast.Constant)]
            if texts:  # else it is of a value, as a field's name, that is marked where it is written
                yield tuple(map(str, texts))


def places(text: str) -> list[str]:
    return sorted(PLACE.findall(text))


def test_every_text_of_the_package_is_translated_and_no_other(catalog: Path) -> None:
    there = {entry.ids for entry in entries(catalog)}
    assert len(there) > 300
    remedy = "update the catalog as CONTRIBUTING.md says"
    assert (said() - there, there - said()) == (set(), set()), remedy
    assert [entry.ids for entry in entries(catalog) if "fuzzy" in entry.flags or not all(entry.translations)] == []
    assert "#~" not in catalog.read_text(), "leave out what is no longer said"


def test_a_translation_has_the_values_of_its_text(catalog: Path) -> None:
    wrong = {}
    for entry in entries(catalog):
        for index, text in enumerate(entry.translations):
            if places(text) != places(entry.ids[min(index, len(entry.ids) - 1)]):
                wrong[entry.ids[0]] = text
            if (text[:1].isspace(), text[-1:].isspace()) != (entry.ids[0][:1].isspace(), entry.ids[0][-1:].isspace()):
                wrong[entry.ids[0]] = text
    assert wrong == {}


def test_the_compiled_catalog_is_that_of_the_text(catalog: Path) -> None:
    with catalog.with_suffix(".mo").open("rb") as file:
        compiled: dict[Any, str] = dict(gettext.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]
    compiled.pop("")
    written: dict[Any, str] = {}
    for entry in entries(catalog):
        if len(entry.ids) == 1:
            written[entry.ids[0]] = entry.translations[0]
        else:
            written |= {(entry.ids[0], index): text for index, text in enumerate(entry.translations)}
    assert compiled == written, "compile it: msgfmt, as CONTRIBUTING.md says"
