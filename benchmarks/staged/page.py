"""Putting the figures of a rehearsal, and its picture, into the page of the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.staged import account, pictures
from benchmarks.staged.record import Record

BLOCKS = ("figures", "course", "sentences", "told")


def publish(result: dict[str, Any], record: Record, docs: Path) -> None:
    """Write anew what is between the marks of the page."""
    (docs / "pictures").mkdir(exist_ok=True)
    pictures.draw(record, docs / "pictures" / "incident")
    path = docs / "incident.md"
    text = path.read_text()
    for name in BLOCKS:
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = before + begin + _block(name, result) + end + rest.split(end)[1]
    path.write_text(text)


def _block(name: str, result: dict[str, Any]) -> str:
    match name:
        case "figures":
            return account.markdown(result)
        case "course":
            rows = [f"| {event['at']:+g} | {event['what']} |" for event in result["events"]]
            return "\n".join(["| seconds | what happened |", "|--:|---|", *rows, ""])
        case "sentences":
            rows = [f"| {name} | {_cell(text)} |" for name, text in result["sentences"].items()]
            return "\n".join(["| of | `explain()` says |", "|---|---|", *rows, ""])
        case _:
            rows = [f"| {each['at']:+g} | {each['code']} | {_cell(each['said'])} |" for each in result["checks"]]
            return "\n".join(["| seconds | exit code | `jobs check` says |", "|--:|--:|---|", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
