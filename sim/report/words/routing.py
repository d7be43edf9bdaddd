"""A routing policy in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.language import N_, _
from sim.report.words.text import commas, listing, percent, plain


def routing_told(routing: Mapping[str, Any]) -> str:
    r"""The policy's name; of one by length also which prompts go where.

    >>> classes = [{"up_to_prompt_tokens": 700, "pools": {"a": 1}}, {"pools": {"a": 1, "b": 3}}]
    >>> routing_told({"policy": "by_length", "classes": classes})
    'by length: prompts of up to 700 tokens to a, longer ones to a (25\xa0%) and b (75\xa0%)'
    """
    name = _(str(routing.get("policy", "")).replace("_", " "))
    classes = list(_classes(routing.get("classes", ())))
    return f"{name}: {commas(classes)}" if classes else name


def _classes(classes: Any) -> Iterator[str]:
    for i, one in enumerate(classes):
        limit = one.get("up_to_prompt_tokens")
        if limit is None:
            which = _("longer ones") if i else _("all prompts")
        else:
            up_to = N_("those of up to {tokens} tokens") if i else N_("prompts of up to {tokens} tokens")
            which = _(up_to, tokens=plain(limit, 6))
        pools, whole = one["pools"], sum(one["pools"].values())
        shares = [f"{pool} ({percent(part / whole)})" if len(pools) > 1 else pool for pool, part in pools.items()]
        yield _("{which} to {listing}", which=which, listing=listing(shares))
