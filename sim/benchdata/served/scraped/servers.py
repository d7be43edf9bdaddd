"""Whose samples they are: a collector keeps those of several servers, and a server counts for each of its ranks."""

from collections.abc import Sequence
from itertools import pairwise

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.scraped.names import CUMULATIVE
from sim.benchdata.served.scraped.samples import Scrape, Series, labelled

TARGET = ("cluster", "namespace", "job", "pod", "instance")
"""Labels by which a collector tells servers apart; an engine has none of them."""
SAME_REQUESTS = ("tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_cp_rank", "pid")
"""Ranks that work on the same requests, and each count them."""
PART = "priority"
"""A gauge of SGLang without it, or with an empty one, is the sum of those that have it."""
RANK = ("engine", "dp_rank")
"""Data-parallel ranks, each with requests of its own."""
Target = tuple[str, ...]


def by_server(scrapes: Sequence[Scrape]) -> dict[str, list[Scrape]]:
    """Name of a server -> its scrapes; the name is empty where no label tells one."""
    found: dict[Target, list[Scrape]] = {}
    for one in scrapes:
        own: dict[Target, Scrape] = {}
        for series, value in one.values.items():
            labels = labelled(series)
            target = tuple(labels.get(name, "") for name in TARGET)
            own.setdefault(target, Scrape(one.place, one.time_s)).values[series] = value
        for target, part in own.items():
            found.setdefault(target, []).append(part)
    return {_called(target): parts for target, parts in sorted(found.items())}


def _called(target: Target) -> str:
    """The pod, or else the address; both where a pod had several."""
    named = dict(zip(TARGET, target, strict=True))
    return " ".join(dict.fromkeys(named[name] for name in ("pod", "instance") if named[name])) or named["job"]


def check_growth(scrapes: Sequence[Scrape]) -> None:
    """Counters of one server never fall. Raises BenchdataError."""
    for earlier, later in pairwise(scrapes):
        for series, after in later.values.items():
            before = earlier.values.get(series, 0.0)
            if after < before and series[0].endswith(CUMULATIVE):
                text = (
                    f"{series[0]} falls from {before:g} to {after:g}: the server was started again between the "
                    f"scrapes, or they stand in the wrong order"
                )
                raise BenchdataError([(later.place, 0, text)])


def ranks_of(scrape: Scrape) -> int:
    """Data-parallel ranks that the samples tell apart, at least 1."""
    labels = [labelled(series) for series in scrape.values]
    return max(1, *(len({one[name] for one in labels if name in one}) for name in RANK))


def gauge(scrape: Scrape, name: str) -> float:
    """Sum over the ranks that have requests of their own."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for series, value in scrape.values.items():
        if series[0] == name and not labelled(series).get(PART):
            whose = tuple(label for label in series[1] if label[0] not in SAME_REQUESTS)
            found[whose] = max(value, found.get(whose, value))
    return sum(found.values())


def label_of(scrape: Scrape, name: str) -> dict[str, str]:
    """The labels of the first series with this name."""
    held: Series | None = next((series for series in scrape.values if series[0] == name), None)
    return dict(held[1]) if held else {}
