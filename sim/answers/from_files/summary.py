"""Sentences on what a draft was made from, for the terminal and for the comments of its file."""

from collections.abc import Iterator

from sim.answers.from_files.draft import Draft
from sim.language import translate_message
from sim.message import Message
from sim.yamlio import dump_line


def summary(draft: Draft) -> Iterator[str]:
    """Yield the lines that the terminal shows."""
    for title, sentences in sections(draft):
        yield f"{translate_message(title)}:"
        yield from (f"  {translate_message(one)}" for one in sentences)
    if draft.assumed:
        yield f"{translate_message('in none of these files, assumed')}:"
        yield from (
            f"  {key}: {_value_text(draft, key)} ({translate_message(why)})" for key, why in draft.assumed.items()
        )


def _value_text(draft: Draft, key: str) -> str:
    fleet = draft.data["fleets"][0]
    if key == "workload":
        arrivals = draft.data["workload"]["arrivals"]
        return Message("{process}, {rate_rps} requests/s", arrivals["process"], arrivals["rate_rps"])
    if key == "workload.adapters":
        return dump_line(draft.data["workload"]["adapters"])
    if key == "cost":
        return str(fleet["cost"]["price"])
    pooled = next((pool[key] for pool in fleet["pools"] if key in pool), None)
    return dump_line(draft.data.get(key, fleet.get(key, pooled)))


def sections(draft: Draft) -> Iterator[tuple[str, list[str]]]:
    """Yield (title, sentences) on the files of *draft*."""
    for source in draft.sources:
        read = list(dict.fromkeys(source.read)) or ["its command"]
        yield Message("read from {name} ({kind})", source.name, source.kind), read
    for title, name in (
        ("not simulated", "not_simulated"),
        ("without effect on latency and cost", "harmless"),
        ("secrets, not copied", "secrets"),
    ):
        if found := list(dict.fromkeys(one for source in draft.sources for one in getattr(source, name))):
            yield title, found if name == "not_simulated" else [", ".join(found)]
    if draft.defaulted:
        yield "not stated, defaults of the engine and the autoscaler", draft.defaulted
    if draft.notes:
        yield "notes", draft.notes
