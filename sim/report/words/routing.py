"""A routing policy in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.report.words.text import listing, percent, plain


def routing_told(routing: Mapping[str, Any]) -> str:
    r"""The policy's name; of one by length also which prompts go where.

    >>> classes = [{"up_to_prompt_tokens": 700, "pools": {"a": 1}}, {"pools": {"a": 1, "b": 3}}]
    >>> routing_told({"policy": "by_length", "classes": classes})
    'by length: prompts of up to 700 tokens to a, longer ones to a (25\xa0%) and b (75\xa0%)'
    """
    name = str(routing.get("policy", "")).replace("_", " ")
    classes = list(_classes(routing.get("classes", ())))
    return f"{name}: {', '.join(classes)}" if classes else name


def _classes(classes: Any) -> Iterator[str]:
    for i, one in enumerate(classes):
        limit = one.get("up_to_prompt_tokens")
        if limit is None:
            which = "longer ones" if i else "all prompts"
        else:
            which = f"{'those' if i else 'prompts'} of up to {plain(limit, 6)} tokens"
        pools, whole = one["pools"], sum(one["pools"].values())
        shares = [f"{pool} ({percent(part / whole)})" if len(pools) > 1 else pool for pool, part in pools.items()]
        yield f"{which} to {listing(shares)}"
