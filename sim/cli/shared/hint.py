"""What is worth asking next, in one line below an answer on a terminal; programs that read the output never see it."""

import sys
from pathlib import Path
from typing import Any


def shown_to_people() -> bool:
    """Whether somebody reads what is printed."""
    return sys.stdout.isatty()


def next_command(command: str, path: Path, folder: Path, scenario: Any) -> str:
    """The next useful command after *command* on the scenario at *path*, whose answer is in *folder*; empty if none."""
    fleets = getattr(scenario, "fleets", ())
    priced, compared = any(fleet.cost is not None for fleet in fleets), len(fleets) > 1
    if command == "check":
        return _line(f"run {path}", "simulates it")
    if command == "run" and scenario.slo.goals:
        return _line(f"capacity {path}", "finds the highest load of each fleet within the SLO")
    if command in ("run", "capacity") and priced and compared:
        return _line(f"sensitivity {path}", "finds which inputs change the result")
    if command == "sensitivity" and priced:
        return _line(f"breakeven {path}", "compares ways to pay, over load and over months")
    if command == "size" and (folder / "winner.yaml").exists():
        return _line(f"run {folder / 'winner.yaml'}", "shows the winner in detail")
    if command == "breakeven" and scenario.plan is not None:
        return _line(f"plan {path}", "says what to order in which month")
    if command in ("breakeven", "plan", "price"):
        return _line(f"export {folder}", "writes the figures as a workbook")
    return ""


def _line(words: str, what: str) -> str:
    return f"next: gpufleet {words} ({what})"
