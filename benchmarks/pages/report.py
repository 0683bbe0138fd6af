"""What was measured, as a table, and what of it is over a limit."""

from __future__ import annotations

import argparse

from benchmarks.pages.site import Site
from benchmarks.pages.visits import Visited

HEAD = ("page", "warm p50", "p95", "cold p50", "p95", "queries", "longest", "rows read", "")
THERE = (200, 405)
LONG_MS, MANY_ROWS = 50, 10_000


def said(seen: list[Visited], options: argparse.Namespace) -> list[Visited]:
    """Print the table; return the pages that are over a limit."""
    here = [found for found in seen if found.status in THERE]
    print(f"\n{len(here)} pages, {options.warm} visits warm, {max(options.cold, 1)} cold; milliseconds\n")
    print("| " + " | ".join(HEAD) + " |")
    print("|---|" + "--:|" * (len(HEAD) - 2) + "---|")
    failed = []
    for found in here:
        faults = list(_faults(found, options))
        failed += [found] if faults else []
        times = [f"{at(times, part):.0f}" for times in (found.warm, found.cold) for part in (0.5, 0.95)]
        numbers = [str(found.queries), f"{found.longest:.0f}", f"{_read(found):,}"]
        print("| " + " | ".join([_cell(found.page.name), *times, *numbers, ", ".join(faults) or "ok"]) + " |")
    for found in seen:
        if found.status not in THERE:
            print(f"not there: {found.page.name} ({found.status})")
    print(f"\n{len(failed)} over a limit" + "".join(f"\n  {found.page.address}" for found in failed), flush=True)
    return failed


def _cell(name: str) -> str:
    return name.replace("|", "\\|")


def at(times: list[float], part: float) -> float:
    """Return the least time within which that part of the visits had its answer."""
    ordered = sorted(times) or [0.0]
    return ordered[max(-int(-part * len(ordered) // 1) - 1, 0)]


def _read(found: Visited) -> int:
    return sum(scan["rows"] for scan in found.scans)


def _faults(found: Visited, options: argparse.Namespace) -> list[str]:
    faults = []
    if max(at(found.warm, 0.95), at(found.cold, 0.95)) >= options.most_ms:
        faults.append("SLOW")
    if found.queries > options.most_queries:
        faults.append("QUERIES")
    if _read(found) > options.most_read:
        faults.append("READS MUCH")
    whole = {scan["table"] for scan in found.scans if scan["how"] == "Seq Scan" and scan["rows"] > options.most_scanned}
    return faults + [f"SCANS {table.removeprefix('django_jobs_')}" for table in sorted(whole)]


def say_statements(site: Site, failed: list[Visited], most_queries: int) -> None:
    """Print the statements of pages: all where they are too many, else those that took long or read much."""
    for found in failed:
        print(f"\n{found.page.address}")
        for line in site.browser.explain(found.page):
            rows = sum(scan["rows"] for scan in line.get("scans", ()))
            large = line["ms"] > LONG_MS or rows > MANY_ROWS
            if large or found.queries > most_queries:
                text = " ".join(line["sql"].split())
                print(f"  {line['ms']:.0f} ms, {rows:,} rows: {text[: 1500 if large else 200]}")
            for scan in line.get("scans", ()) if large else ():
                print(f"    {scan['how']} {scan['table']} {scan['by']}: {scan['rows']:,}")
