"""Form of a reader's own numbers: written into a scenario, and read from one.

The form knows one kind of scenario: one service, whose fleets have one pool each. What else a scenario contains stays
as it is, so that form and YAML can be edited in turn; comments are lost, since the form writes plain data.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from math import isfinite
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.language import N_, _
from sim.scenario.reading.layers import value_at

PEOPLE, REQUESTS = "people", "requests"
BUY, RENT = "buy", "rent"
USD = "USD"
CURRENCIES = (USD, "EUR", "CNY", "GBP", "JPY", "KRW", "INR", "SGD", "TWD", "CHF")
HOURS, DAYS = 24.0, 365.0
MOST_FLEETS = 8
SCENARIO_PATHS: dict[str, tuple[str | int, ...]] = {
    "model": ("model",),
    "quantization": ("quantization",),
    "prompt": ("workload", "lengths", "prompt", "mean"),
    "answer": ("workload", "lengths", "output", "mean"),
    "ttft_s": ("slo", "ttft_s"),
    "tpot_s": ("slo", "tpot_s"),
    "currency": ("finance", "currency"),
}
"""Fields of the form that have one place in the scenario, with the path of that place."""
LOADS = {"people": "concurrency", "rate_rps": "rate_rps"}
NUMBERS: dict[str, tuple[str, float, float]] = {
    "people": (N_("a whole number of 1 or more"), 1, 1e6),
    "think_s": (N_("a number of seconds, 0 or more"), 0, 1e6),
    "rate_rps": (N_("a number above 0"), 1e-6, 1e6),
    "prompt": (N_("a number of tokens, 1 or more"), 1, 1e7),
    "answer": (N_("a number of tokens, 1 or more"), 1, 1e6),
    "ttft_s": (N_("a number of seconds above 0, or nothing for no limit"), 1e-6, 1e6),
    "tpot_s": (N_("a number of seconds above 0, or nothing for no limit"), 1e-6, 1e6),
    "hours": (N_("hours a day, above 0 and up to 24"), 1e-3, HOURS),
    "electricity": (N_("a price, 0 or more"), 0, 1e6),
    "rate_usd": (N_("US dollars for one unit of the currency, above 0: 0.14"), 1e-9, 1e6),
    "count": (N_("a whole number of GPUs, 1 or more"), 1, 1e5),
    "per_copy": (N_("a whole number of GPUs, 1 or more"), 1, 1e4),
    "price": (N_("a price, 0 or more"), 0, 1e9),
    "server_price": (N_("a price, 0 or more"), 0, 1e9),
}
"""Numbers of the form: what is allowed, the lowest and the highest value."""
WHOLE_NUMBERS = frozenset({"people", "count", "per_copy"})
OPTIONAL_FIELDS = frozenset({"ttft_s", "tpot_s", "price", "server_price"})
START: dict[str, Any] = {
    "load": PEOPLE, "people": 40, "think_s": 30, "rate_rps": 1, "prompt": 1500, "answer": 300, "model": "llama3.1-8b",
    "quantization": "fp8", "ttft_s": 2, "tpot_s": 0.05, "hours": 24, "electricity": 0.12, "currency": USD,
    "rate_usd": 1,
    "fleets": [
        {"gpu": "rtx-4090", "count": 1, "per_copy": 1, "server": "workstation-1x4090", "server_price": 2500,
         "acquisition": BUY, "price": 1900},
        {"gpu": "l40s", "count": 1, "per_copy": 1, "server": "", "server_price": "", "acquisition": RENT,
         "price": 0.9},
    ],
}  # fmt: skip
"""Numbers that the form begins with."""
DEFAULT_FLEET = {**START["fleets"][0], "server": "", "price": "", "server_price": ""}
"""Values of a fleet that names only some of them."""
LOAD_FACTORS = (0.25, 0.5, 1, 2)
"""Loads that are simulated, as multiples of the stated one."""

Errors = list[dict[str, str]]


def start(name: str, catalog: Catalog) -> dict[str, Any]:
    """Return the scenario *name* with the numbers that the form begins with."""
    data: dict[str, Any] = {
        "name": name,
        "question": _("Which fleet serves our load for the least money?"),
        "model": "",
        "quantization": "",
        "workload": {},
        "horizon_s": 1200,
        "warmup_s": 200,
        "seed": 1,
        "replications": 3,
        "slo": {"attainment": 0.95},
        "fleets": [],
        "site": {"pue": 1.3},
        "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "residual_fraction": 0.2},
    }
    return with_numbers(data, START, catalog)[0]


def read(data: Any) -> dict[str, Any] | None:
    """Return the numbers of the form in the scenario *data*; None for another kind of scenario."""
    try:
        return _read(data)
    except (LookupError, TypeError, AttributeError, ValueError):
        return None


def _read(data: dict[str, Any]) -> dict[str, Any]:
    arrivals, finance = data["workload"]["arrivals"], data.get("finance") or {}
    if any(section in data for section in ("services", "job", "jobs", "base", "size", "claim")):
        raise ValueError
    load = {"closed_loop": PEOPLE, "poisson": REQUESTS}[arrivals["process"]]
    found = {
        name: _value_or_usual(data, place, START[name] if name not in OPTIONAL_FIELDS else "")
        for name, place in SCENARIO_PATHS.items()
    }
    currency = found["currency"] = found["currency"] or USD
    amount = arrivals[LOADS["people" if load == PEOPLE else "rate_rps"]]
    found |= {
        "load": load,
        "people": amount if load == PEOPLE else START["people"],
        "think_s": arrivals.get("think_s", START["think_s"]),
        "rate_rps": amount if load == REQUESTS else START["rate_rps"],
        "hours": _hours(data.get("load_profile")),
        "electricity": _amount(data["site"]["electricity_usd_per_kwh"]),
        "rate_usd": (finance.get("fx") or {}).get(currency, 1 if currency == USD else ""),
        "fleets": [_fleet(fleet) for fleet in data["fleets"]],
    }
    plain = [value for name, value in found.items() if name != "fleets"]
    if not all(isinstance(value, str | int | float) and not isinstance(value, bool) for value in plain):
        raise ValueError
    return found


def _value_or_usual(data: Any, place: tuple[str | int, ...], usual: Any) -> Any:
    try:
        value = value_at(data, place)
    except LookupError:
        return usual
    return usual if value is None else value


def _hours(profile: Any) -> float:
    """Return the hours a day with load in a profile that the form has written."""
    if profile is None:
        return HOURS
    loads = {float(load): float(hours) for load, hours in profile.items()}
    (busy,) = [hours for load, hours in loads.items() if load]
    return float(f"{busy / DAYS:.4g}")


def _amount(price: Any) -> Any:
    return price["price"] if isinstance(price, dict) else price


def _fleet(fleet: dict[str, Any]) -> dict[str, Any]:
    (pool,) = fleet["pools"]
    cost = fleet.get("cost") or {}
    per_copy = pool.get("tensor_parallel_size", 1)
    quotes, server = cost.get("quotes") or {}, pool.get("server", "")
    return {
        "gpu": pool["gpu"],
        "count": pool.get("replicas", 1) * per_copy,
        "per_copy": per_copy,
        "server": server,
        "server_price": _amount(quotes.get(server, "")),
        "acquisition": {BUY: BUY, RENT: RENT}[cost.get("acquisition", BUY)],
        "price": _amount(quotes.get(pool["gpu"], "")),
    }


def with_numbers(data: dict[str, Any], values: Mapping[str, Any], catalog: Catalog) -> tuple[dict[str, Any], Errors]:
    """Return *data* with the *values* of the form, and the mistakes in these; wrong values are not written."""
    errors: Errors = []
    given = _numbers(values, START, "", errors)
    rows = values.get("fleets")
    fleets = [
        _numbers(row if isinstance(row, dict) else {}, DEFAULT_FLEET, f"fleets.{at}.", errors)
        for at, row in enumerate(rows[:MOST_FLEETS] if isinstance(rows, list) else [])
    ]
    for at, row in enumerate(fleets):
        if row["count"] % row["per_copy"]:
            text = _("{count} GPUs cannot be divided into copies of {per_copy}", **row)
            errors.append({"field": f"fleets.{at}.per_copy", "message": text})
        if row["acquisition"] == RENT and row["price"] == "":
            text = _("a rent needs its price per GPU-hour")
            errors.append({"field": f"fleets.{at}.price", "message": text})
    if not fleets:
        errors.append({"field": "fleets", "message": _("at least one fleet is needed")})
    if errors:
        return data, errors
    before, found = read(data) or {}, deepcopy(data)
    _write_top(found, given, before)
    _write_fleets(found, fleets, before.get("fleets", []), given["currency"], catalog)
    return found, []


def _numbers(values: Mapping[str, Any], usual: Mapping[str, Any], front: str, errors: Errors) -> dict[str, Any]:
    """Return the fields of *usual* in *values*, numbers as such; mistakes are added to *errors*."""
    found: dict[str, Any] = {}
    for name, standard in usual.items():
        value = values.get(name, standard)
        if name in NUMBERS:
            used = name not in ("people", "think_s") or values.get("load", PEOPLE) == PEOPLE
            used = used and (name != "rate_rps" or values.get("load") == REQUESTS)
            used = used and (name != "rate_usd" or values.get("currency", USD) != USD)
            number = _number(name, value)
            if number is None:
                if used:
                    allowed = NUMBERS[name][0]
                    errors.append({"field": f"{front}{name}", "message": _("must be {allowed}", allowed=_(allowed))})
                number = standard
            found[name] = number
        elif name != "fleets":
            found[name] = str(value).strip()[:200]
    return found


def _number(name: str, value: Any) -> Any:
    """Return *value* as a number, or as "" where it may be missing and is; None where it is wrong."""
    text = str(value).strip().replace(",", "") if isinstance(value, str | int | float) else "?"
    if not text:
        return "" if name in OPTIONAL_FIELDS else None
    try:
        number = float(text)
    except ValueError:
        return None
    _allowed, least, most = NUMBERS[name]
    if not isfinite(number) or not least <= number <= most or (name in WHOLE_NUMBERS and not number.is_integer()):
        return None
    return int(number) if number.is_integer() else number


def _write_top(found: dict[str, Any], given: dict[str, Any], before: Mapping[str, Any]) -> None:
    new = {name for name, value in given.items() if before.get(name) != value}
    for name, place in SCENARIO_PATHS.items():
        if name in new and (name != "currency" or given[name] != USD or before):
            _put(found, place, given[name] if given[name] != "" else None)
    workload = found["workload"]
    for part, name in (("prompt", "prompt"), ("output", "answer")):
        if name in new:
            usual = {"distribution": "lognormal", "mean": given[name], "cv": 1.0, "max": int(8 * given[name])}
            old = workload["lengths"][part]
            workload["lengths"][part] = {**usual, **old, "mean": given[name], "max": usual["max"]}
            found["max_model_len"] = _context(workload["lengths"])
    amount = given["people"] if given["load"] == PEOPLE else given["rate_rps"]
    key = "concurrency" if given["load"] == PEOPLE else "rate_rps"
    if {"load", "people", "think_s", "rate_rps", "hours"} & new:
        process = {"process": "closed_loop"} if given["load"] == PEOPLE else {"process": "poisson"}
        think = {"think_s": given["think_s"]} if given["load"] == PEOPLE else {}
        workload["arrivals"] = {**process, key: amount, **think}
        workload["lengths"] = workload.pop("lengths")  # moves `lengths` below `arrivals` in the file
        found["sweep"] = {f"workload.arrivals.{key}": list(_loads(amount, given["load"] == PEOPLE))}
        found.pop("load_profile", None)
        if given["hours"] < HOURS:
            busy = given["hours"] * DAYS
            found["load_profile"] = {amount: busy, 0: HOURS * DAYS - busy}
    if {"electricity", "currency"} & new:
        found["site"]["electricity_usd_per_kwh"] = _money(given["electricity"], given["currency"])
    if {"currency", "rate_usd"} & new:
        fx = dict(found["finance"].get("fx") or {})
        fx.pop(before.get("currency"), None)
        if given["currency"] != USD:
            fx[given["currency"]] = given["rate_usd"]
        found["finance"].pop("fx", None)
        if fx:
            found["finance"]["fx"] = fx


def _loads(amount: float, whole: bool) -> Iterator[float]:
    for one in dict.fromkeys(max(1, round(part * amount)) if whole else part * amount for part in LOAD_FACTORS):
        yield one if whole else float(f"{one:.4g}")


def _context(lengths: dict[str, Any]) -> int:
    """Return the longest context that is needed, as a power of two; a longer one would reserve unused memory."""
    most = sum(int(lengths.get(part, {}).get("max", 0)) for part in ("prompt", "output"))
    return 1 << max(11, (most - 1).bit_length())


def _write_fleets(
    found: dict[str, Any], rows: Sequence[dict[str, Any]], before: Sequence[Any], currency: str, catalog: Catalog
) -> None:
    fleets = found["fleets"] = [*found["fleets"][: len(rows)]]
    priced_anew = bool(before) and currency != _currency(found, fleets)
    for at, row in enumerate(rows):
        if at < len(before) and before[at] == row and not priced_anew:
            continue
        if at >= len(fleets):
            fleets.append({"name": "", "pools": [{"gpu": ""}], "cost": {}})
        fleet = fleets[at]
        pool = fleet["pools"][0]
        pool |= {"gpu": row["gpu"], "replicas": row["count"] // row["per_copy"]}
        _put(pool, ("tensor_parallel_size",), row["per_copy"] if row["per_copy"] > 1 else None)
        _put(pool, ("server",), row["server"] or None)
        items = {row["gpu"]: row["price"], row["server"]: row["server_price"] if row["acquisition"] == BUY else ""}
        quotes = {item: _money(price, currency) for item, price in items.items() if item and price != ""}
        share = {"share": True} if row["acquisition"] == BUY and row["server"] else {}
        fleet["cost"] = {"acquisition": row["acquisition"], **share, **({"quotes": quotes} if quotes else {})}
        others = [one["name"] for one in fleets if one is not fleet]
        fleet["name"] = _name(row, others, catalog)


def _currency(found: dict[str, Any], fleets: Sequence[dict[str, Any]]) -> str:
    """Return the currency in which prices are quoted so far."""
    quoted = [price for fleet in fleets for price in ((fleet.get("cost") or {}).get("quotes") or {}).values()]
    return next((price.get("currency", USD) for price in quoted if isinstance(price, dict)), USD)


def _name(row: dict[str, Any], others: Sequence[str], catalog: Catalog) -> str:
    gpu = row["gpu"]
    known = catalog.gpu(gpu).name if gpu in catalog.ids("gpus") else gpu
    short = known.removeprefix("NVIDIA ").removeprefix("GeForce ")
    name = f"{row['count']}x {short}"
    if row["acquisition"] == RENT:
        name = _("{fleet} rented", fleet=name)
    number, found = 2, name
    while found in others:
        found, number = f"{name} ({number})", number + 1
    return found


def _money(amount: Any, currency: str) -> Any:
    return amount if currency == USD else {"price": amount, "currency": currency}


def _put(data: dict[str, Any], place: Sequence[str | int], value: Any) -> None:
    """Set *place* of *data* to *value*; None removes it."""
    *above, last = place
    part: Any = data
    for step in above:
        part = part.setdefault(step, {}) if isinstance(part, dict) else part[step]
    if value is None:
        part.pop(last, None)
    else:
        part[last] = value


def choices(catalog: Catalog) -> dict[str, Any]:
    """Return the values that the fields of the form offer; servers with the GPU that they take, and how many."""
    servers = {name: catalog.server(name) for name in catalog.ids("servers")}
    return {
        "model": catalog.ids("models"),
        "quantization": ["none", *(one for one in catalog.ids("quantizations") if one != "none")],
        "gpu": catalog.ids("gpus"),
        "currency": list(CURRENCIES),
        "server": {name: server.gpu or "" for name, server in servers.items()},
        "slots": {name: int(server.gpu_slots.value) for name, server in servers.items()},
    }


def field_of(where: str) -> str:
    """Return the field of the form that a mistake at the dotted path *where* belongs to; empty for none."""
    steps = where.replace("[", ".").replace("]", "").split(".")
    if steps[0] == "fleets" and len(steps) > 1:
        part = {"pools": "gpu", "cost": "price"}.get(steps[2] if len(steps) > 2 else "", "gpu")
        return f"fleets.{steps[1]}.{'server' if 'server' in steps else part}"
    if steps[0] == "load_profile":
        return "hours"
    if steps[0] == "site":
        return "electricity"
    if "arrivals" in steps:
        return {"concurrency": "people", "think_s": "think_s"}.get(steps[-1], "rate_rps")
    if "fx" in steps:
        return "rate_usd"
    known = {".".join(map(str, place)): name for name, place in SCENARIO_PATHS.items()}
    return next((name for path, name in known.items() if where.startswith(path)), "")
