"""Inputs that the page can change without a simulation: limits, prices and terms of the scenario, each a number."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from sim.catalogue.catalog import Catalog
from sim.cost.buying import Buy
from sim.cost.finance import Finance
from sim.cost.prices import offer_item
from sim.cost.rental import Rent
from sim.jobs.load import AnyScenario
from sim.language import N_, _, ngettext
from sim.report.words.text import plain
from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.slo import LATENCIES
from sim.scenario.sweep import as_data, points
from sim.study.booked_inputs import INPUTS, booked_inputs, in_stated_currency, number_of
from sim.training.schema import JobFleet

USD = "USD"
LIMITS = {"ttft_s": N_("TTFT at most"), "tpot_s": N_("TPOT at most"), "e2e_s": N_("E2E at most")}
AROUND = 3.0
"""Factor by which the range of a slider extends below and above the current value."""
SPANS = {"discount_rate": (0.0, 0.25), "residual_fraction": (0.0, 1.0), "life_years": (1.0, 10.0)}
"""Range of the slider by term, whatever the value."""
FRACTIONS = (N_("of the price"), N_("per year"), N_("of profits"))
"""Units of inputs that are fractions."""
DIGITS = 6
"""Number of significant digits of a stated value, as in its field."""
FINANCING = {
    "loan.share": (N_("share of the loan"), N_("of the price"), 0.01, 1.0),
    "loan.rate": (N_("interest rate of the loan"), N_("per year"), 0.0, 0.25),
    "loan.term_months": (N_("term of the loan"), N_("months"), 1, 120),
    "loan.grace_months": (N_("months of interest alone"), N_("months"), 0, 60),
    "lease.payment": (N_("monthly lease payment"), N_("of the price"), 0.005, 0.1),
    "lease.rate": (N_("interest rate of the lease"), N_("per year"), 0.0, 0.25),
    "lease.term_months": (N_("term of the lease"), N_("months"), 1, 120),
    "lease.residual": (N_("residual value of the lease"), N_("of the price"), 0.0, 1.0),
    "lease.buyout": (N_("buyout at the end of the lease"), N_("of the price"), 0.0, 1.0),
    "lease.deposit": (N_("deposit of the lease"), N_("of the price"), 0.0, 1.0),
    "tax.rate": (N_("corporate tax rate"), N_("of profits"), 0.0, 0.6),
}
"""Path within `finance` to a number of a loan, a lease or the income tax -> (name, unit, least, most)."""

Paid = Mapping[str, Collection[str]]
"""Components of the bill by fleet."""


@dataclass(frozen=True, slots=True)
class AdjustableInput:
    """Input that the page can change."""

    path: str
    """Dotted path of the input, as in `--set`."""
    label: str
    unit: str
    value: float | None
    """Value in the scenario; None where it has none, as for a missing limit."""
    least: float
    most: float
    group: str = ""
    """Heading of the input; empty: that of the limits, or of the prices and terms."""
    choices: tuple[int, ...] = ()
    """Values at which the slider stops; empty: any between `least` and `most`."""


def adjustable_inputs(scenario: Scenario | AnyScenario, catalog: Catalog, paid: Paid) -> list[AdjustableInput]:
    """Return the adjustable inputs of *scenario*, without those that its sweep varies."""
    data = as_data(scenario)
    swept = {place_of(data, axis) for point in points(scenario.sweep) for axis in point}
    limits = _limits(scenario) if isinstance(scenario, Scenario) else ()
    found = [*limits, *_terms(data, booked_inputs(data)), *_prices(scenario, catalog, paid)]
    places = [(one, place_of(data, one.path) if not one.path.startswith("slo.") else ("slo",)) for one in found]
    return [one for one, place in places if not any(place[: len(axis)] == axis[: len(place)] for axis in swept)]


def financed_inputs(scenario: Scenario, catalog: Catalog, paid: Paid, options: bool) -> list[AdjustableInput]:
    """Return the adjustable inputs of an answer after financing and tax, those of financing first.

    With *options*, those of `breakeven.financing` are among them.
    """
    data = as_data(scenario.model_copy(update={"sweep": None}))
    booked = list(_terms(data, INPUTS))
    group, rate = _("Financing and tax"), "finance.discount_rate"
    financing = [*_financing(data, scenario, options), *(one for one in booked if one.path == rate)]
    others = [*(one for one in booked if one.path != rate), *_prices(scenario, catalog, paid)]
    return [*(replace(one, group=group) for one in financing), *others]


def stated_amount(one: AdjustableInput) -> str:
    """Format the value of an input to six digits, with its unit, fractions in percent."""
    if one.value is None:
        return _("none")
    if one.choices:
        return ngettext("{count} month", "{count} months", int(one.value))
    if one.unit in map(_, FRACTIONS):
        return f"{plain(100 * one.value, DIGITS)}\u00a0%"
    return f"{plain(one.value, DIGITS)} {one.unit}".strip()


def _financing(data: dict[str, Any], scenario: Scenario, options: bool) -> Iterator[AdjustableInput]:
    """Yield the stated numbers of loans, leases and income tax: the scenario's, each fleet's and each option's."""
    ways = scenario.breakeven.financing if options and scenario.breakeven is not None else {}
    places = [("finance", "", scenario.finance)]
    places += [(f"fleets.{i}.finance", fleet.name, fleet.finance) for i, fleet in enumerate(scenario.fleets)]
    places += [(f"breakeven.financing.{label}", label, scenario.finance) for label in ways]
    for prefix, owner, finance in places:
        for path, (name, unit, least, most) in FINANCING.items():
            number = number_of(data, f"{prefix}.{path}")
            if number is None:
                continue
            full, now = number
            label = _("{owner}: {name}", owner=owner, name=_(name)) if owner else _(name)
            choices: tuple[int, ...] = ()
            if path.endswith("months"):
                choices = tuple(range(int(least), max(int(most), int(now)) + 1))
            if path == "lease.term_months":
                choices = _lease_terms(value_at(data, place_of(data, f"{prefix}.lease")), finance) or choices
            low, high = (choices[0], choices[-1]) if choices else (least, max(most, now))
            yield AdjustableInput(full, label, _(unit), now, float(low), float(high), choices=choices)


def _lease_terms(lease: dict[str, Any], finance: Finance | None) -> tuple[int, ...]:
    """Return the terms of the *lease* that fit the life of hardware [months]; empty where it is not known."""
    life = finance.whole_life_months if finance is not None else 0
    returned = lease.get("at_end", "return") == "return"
    return tuple(months for months in range(1, life + 1) if not returned or life % months == 0)


def _limits(scenario: Scenario) -> Iterator[AdjustableInput]:
    if scenario.services:
        return  # services have their own limits
    for name in LATENCIES:
        limit = getattr(scenario.slo, name)
        if not isinstance(limit, dict):
            most = 3 * limit if limit else 10.0
            yield AdjustableInput(f"slo.{name}", _(LIMITS[name]), "s", limit, most / 300, most)
    if scenario.slo.per_request:
        yield AdjustableInput(
            "slo.attainment", _("for at least"), _("of the requests"), scenario.slo.attainment, 0.5, 1.0
        )


def _terms(data: dict[str, Any], inputs: Mapping[str, tuple[str, str, float, float]]) -> Iterator[AdjustableInput]:
    for usual, (name, unit, low, high) in inputs.items():
        number = number_of(data, usual)
        if number is not None:
            path, now = number
            yield _with_range(path, _(name), in_stated_currency(data, path, _(unit) if unit else ""), now, low, high)


def _prices(scenario: Scenario | AnyScenario, catalog: Catalog, paid: Paid) -> Iterator[AdjustableInput]:
    fleets: Sequence[Fleet | JobFleet] = scenario.fleets
    for position, fleet in enumerate(fleets):
        cost, finance = fleet.cost, fleet.finance or scenario.finance
        fx = {USD: 1.0, **(finance.rates if finance is not None else {})}
        if isinstance(cost, Buy | Rent):
            for item in _items(fleet, cost, catalog, paid.get(fleet.name, ())):
                price = _quoted_price(cost, item) if item in cost.quotes else _listed(cost, item, catalog, fx)
                if price is not None and "." not in item:
                    path = f"fleets.{position}.cost.quotes.{item}{price.key}"
                    yield _with_range(path, _price_of(cost, item, fleet.name), _unit(price), price.value, 0.0, inf)


class _Price(NamedTuple):
    """Current price of an item."""

    value: float
    currency: str
    unit: str
    key: str = ""
    """Rest of the path of the number after the item."""


def _items(fleet: Fleet | JobFleet, cost: Buy | Rent, catalog: Catalog, paid: Collection[str]) -> list[str]:
    """Return the items that a quote can name: quoted items, GPUs paid for one by one, and servers."""
    pools = [pool for pool in fleet.pools if pool.gpu and not getattr(pool, "mig", None)]
    offers = cost.offers if isinstance(cost, Buy) else ()
    by_gpu = isinstance(cost, Rent) or "gpu_capital" in paid
    gpus = [str(pool.gpu) for pool in pools if by_gpu]
    servers = [
        pool.server
        for pool in pools
        if pool.server and "server_capital" in paid and (not by_gpu or _is_bare(pool.server, catalog, offers))
    ]
    return list(dict.fromkeys([*cost.quotes, *gpus, *servers]))


def _is_bare(server: str, catalog: Catalog, offers: Sequence[str]) -> bool:
    """Return whether the price of *server* excludes GPUs: that of a named offer, else the catalogue's default."""
    prices = catalog.prices(server)
    named = next((one.partition("/")[2] for one in offers if offer_item(one) == server), "")
    offer = prices.offers.get(named or prices.default_purchase or "") if prices else None
    return offer is not None and not offer.includes_gpus


def _quoted_price(cost: Buy | Rent, item: str) -> _Price:
    quote = cost.quotes[item]
    unit = quote.unit or ("each" if isinstance(cost, Buy) else "gpu_hour")
    has_more = quote.model_fields_set - {"price"}
    return _Price(quote.price, quote.currency, unit, ".price" if has_more else "")


def _listed(cost: Buy | Rent, item: str, catalog: Catalog, fx: Mapping[str, float]) -> _Price | None:
    """Return the catalogue's price of *item* [USD], by the rates *fx*; None where a quote cannot replace it."""
    if isinstance(cost, Rent):
        list_id, _slash, offer = (cost.price or "").partition("/")
        unit = "gpu_hour"
    else:
        named = next((offer for offer in cost.offers if offer_item(offer) == item), "")
        list_id, offer, unit = item, named.partition("/")[2], "each"
    prices = catalog.prices(list_id) if list_id else None
    found = prices.offers.get(offer or prices.default_purchase or "") if prices else None
    if found is None or found.unit != unit or found.currency not in fx:
        return None
    return _Price(found.price.value * fx[found.currency], USD, unit)


def _price_of(cost: Buy | Rent, item: str, fleet: str) -> str:
    if isinstance(cost, Buy):
        return _("price of {item}, {fleet}", item=item, fleet=fleet)
    return _("rent of {item}, {fleet}", item=item, fleet=fleet)


def _unit(price: _Price) -> str:
    if price.unit == "each":
        return _("{currency} each", currency=price.currency)
    if price.unit == "gpu_hour":
        return _("{currency} per GPU-hour", currency=price.currency)
    return f"{price.currency}/{price.unit}"


def _with_range(path: str, label: str, unit: str, now: float, low: float, high: float) -> AdjustableInput:
    least, most = SPANS.get(path.rpartition(".")[2], (now / AROUND, now * AROUND if now else 1.0))
    return AdjustableInput(path, label, unit, now, max(low, min(least, now)), min(high, max(most, now)))
