"""Scenarios to start from: those that came with the program, and a commented one."""

from sim.scenario.reading.shipped import shipped_folder
from sim.scenario.reading.template import template
from sim.serve.refused import Refused

NEW = "new"
NAMED = {
    "4x4090-vs-2xa100": "Two ways to serve a 72B chat",
    "energy-mac-vs-4090": "Home server",
    "plan-grow-72b": "Buy as the load grows",
    "breakeven-4x4090-vs-2xa100": "Rent or buy",
    "rent-by-day": "Rent by the day",
    "size-72b-chat": "The cheapest fleet for a load",
    "training-4090-vs-a100": "Training job",
}
"""Name of a shipped scenario -> what it is a start for."""


def templates() -> list[dict[str, str]]:
    """What can be started from."""
    shipped = sorted(path.stem for path in shipped_folder().glob("*.yaml"))
    found = [{"name": NEW, "title": "A commented scenario with the usual sections"}]
    found += [{"name": name, "title": NAMED[name]} for name in NAMED if name in shipped]
    return found + [{"name": name, "title": name} for name in shipped if name not in NAMED]


def template_text(name: str) -> str:
    """The text of a template. Raises Refused for a name that is none."""
    if name == NEW:
        return template("scenario")
    if name not in {path.stem for path in shipped_folder().glob("*.yaml")}:
        raise Refused(404, f"{name[:60]!r} is no template: {', '.join(one['name'] for one in templates())} are")
    return (shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8")
