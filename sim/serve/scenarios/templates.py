"""Scenarios to start from: those that came with the program, and some more."""

from pathlib import Path

from sim.language import N_, _
from sim.scenario.reading.shipped import shipped_folder
from sim.scenario.reading.template import template
from sim.serve.refused import Refused

NEW = "new"
STARTS = Path(__file__).parent / "starts"
NAMED = {
    NEW: N_("A commented scenario with the usual sections"),
    "energy-mac-vs-4090": N_("Home server: a Mac or an RTX 4090"),
    "office": N_("An office of 40 people"),
    "chat-from-a-trace": N_("A chat service, from a trace of its requests"),
    "4x4090-vs-2xa100": N_("Two fleets for a 72B chat service"),
    "breakeven-4x4090-vs-2xa100": N_("Rent, buy, or an API"),
    "rent-by-day": N_("Rent by the day or own"),
    "training-4090-vs-a100": N_("A training job"),
}
"""Name -> what it is a start for; the other shipped scenarios follow by their names."""


def templates() -> list[dict[str, str]]:
    """What can be started from, the usual ones first."""
    known = [NEW, *_files()]
    others = [name for name in known if name not in NAMED]
    return [{"name": name, "title": _(NAMED[name])} for name in NAMED if name in known] + [
        {"name": name, "title": name} for name in others
    ]


def template_text(name: str) -> str:
    """The text of a template. Raises Refused for a name that is none."""
    if name == NEW:
        return template("scenario")
    files = _files()
    if name not in files:
        raise Refused(404, f"{name[:60]!r} is no template: {', '.join(one['name'] for one in templates())} are")
    return files[name].read_text(encoding="utf-8")


def _files() -> dict[str, Path]:
    return {path.stem: path for folder in (STARTS, shipped_folder()) for path in sorted(folder.glob("*.yaml"))}
