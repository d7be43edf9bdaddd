import pytest
from pydantic import TypeAdapter, ValidationError

from sim.cost.prices import CostError, Price
from sim.cost.site import Site

BUY = {"acquisition": "buy"}
HOUR_OF_3_YEARS = 3 * 8760
RACK = {"per": "rack", "usd_per_month": 1500, "power_limit_kw": 20, "servers_per_rack": 2, "count": "fraction"}


def site(**hosting):
    return {"electricity_usd_per_kwh": 0.1, "pue": 1.0, "hosting": hosting}


def per_month(plan, component="hosting"):
    charges = [charge for charge in plan.charges if charge.component == component]
    return sum(charge.units_per_h * charge.price.usd for charge in charges) * 730


def units_per_h(plan, component):
    return sum(charge.units_per_h for charge in plan.charges if charge.component == component)


def problems(error):
    return {problem.path: problem.text for problem in error.value.problems}


def test_a_bare_server_and_the_gpus_in_use_are_bought(resolve, make_pool):
    plan = resolve(BUY, make_pool(gpus=2, replicas=3))
    assert units_per_h(plan, "server_capital") == 2
    assert units_per_h(plan, "gpu_capital") == 6
    assert plan.capex_usd == 2 * 3400 + 6 * 1900
    assert plan.notes[0] == "2 of 8 slots of box are paid for and not used."
    assert set(plan.values) == {"card/new", "box/bare"}


def test_gpus_in_unused_slots_are_bought_only_if_the_price_includes_them(resolve, make_pool):
    plan = resolve(BUY, make_pool(gpus=3, server="full", slots=8))
    assert plan.capex_usd == 300_000
    assert "gpu_capital" not in {charge.component for charge in plan.charges}


def test_a_half_filled_server_is_completed_with_single_gpus(resolve, make_pool):
    quotes = {"box": {"price": 10_000, "includes_gpus": 2}}
    plan = resolve(BUY | {"quotes": quotes}, make_pool(gpus=4, replicas=2))
    assert units_per_h(plan, "gpu_capital") == 8 - 2 * 2


def test_share_pays_for_the_slots_in_use_and_reports_it(resolve, make_pool):
    plan = resolve(BUY | {"share": True}, make_pool(gpus=3, server="full", slots=8), site=site(**RACK))
    assert plan.capex_usd == pytest.approx(300_000 * 3 / 8)
    assert per_month(plan) == pytest.approx(1500 / 2 * 3 / 8)
    assert "shared" in plan.notes[0]


def test_gpus_that_a_server_brings_beyond_those_in_use_are_unused(resolve, make_pool):
    # 12 of the 16 GPUs of two servers
    plan = resolve(BUY, make_pool(gpus=6, replicas=2, server="full", slots=8))
    [charge] = [one for one in plan.charges if one.component == "server_capital"]
    assert (charge.once_usd, charge.unused.share) == (600_000, pytest.approx(0.25))


def test_pools_with_the_same_server_and_gpu_fill_it_together(resolve, make_pool):
    plan = resolve(BUY, make_pool("a", gpus=1), make_pool("b", gpus=3))
    assert plan.capex_usd == 3400 + 4 * 1900
    servers = {charge.pool: charge.units_per_h for charge in plan.charges if charge.component == "server_capital"}
    assert servers == {"a": 0.25, "b": 0.75}


def test_quotes_override_the_catalogue(resolve, make_pool):
    plan = resolve(BUY | {"quotes": {"card": 1000, "box": 500}}, make_pool())
    assert plan.capex_usd == 4 * 1000 + 500
    assert plan.values == {}
    assert {charge.price.source for charge in plan.charges if charge.once_usd} == {
        "scenario: cost.quotes.card",
        "scenario: cost.quotes.box",
    }


@pytest.mark.parametrize(
    ("quotes", "capex_usd"),
    [
        ({"full": 200_000}, 200_000),  # includes what the catalogue's offer includes
        ({"full": 200_000, "card": 10_000}, 280_000),  # the GPU is quoted too: the server is bare
        ({"full": {"price": 200_000, "includes_gpus": 8}, "card": 10_000}, 200_000),
        ({"card": 10_000}, 300_000),
    ],
)
def test_whether_a_quoted_server_brings_its_gpus(resolve, make_pool, quotes, capex_usd):
    plan = resolve(BUY | {"quotes": quotes}, make_pool(gpus=8, server="full", slots=8))
    assert plan.capex_usd == capex_usd
    assert ("The quote for card is not used." in plan.notes) == ("card" in quotes and capex_usd != 280_000)


def test_a_named_offer_takes_the_place_of_the_default_purchase(resolve, make_pool):
    used = resolve(BUY | {"price": "card/used"}, make_pool())
    assert (used.capex_usd, set(used.values)) == (4 * 900 + 3400, {"card/used", "box/bare"})
    both = resolve(BUY | {"price": ["card/used", "box/old"]}, make_pool())
    assert both.capex_usd == 4 * 900 + 1000
    assert resolve(BUY | {"price": "card/used", "quotes": {"card": 1}}, make_pool()).capex_usd == 4 + 3400
    assert resolve(BUY | {"price": "card/new"}, make_pool()).capex_usd == resolve(BUY, make_pool()).capex_usd


def test_an_unused_named_offer_is_reported(resolve, make_pool):
    plan = resolve(BUY | {"price": "card/used"}, make_pool(gpus=8, server="full", slots=8))
    assert "The offer card/used is not used." in plan.notes


@pytest.mark.parametrize(
    ("price", "text"),
    [
        ("card/usd", "did you mean used"),
        ("card/cloud", r"card/cloud is a price per gpu_hour; buying needs a price for each"),
        ("full/whole", "full/whole is not a price of what is bought: card, box"),
        (["card/used", "card/new"], "card/used and card/new are both prices of card"),
    ],
)
def test_a_wrong_purchase_offer_is_one_clear_error(resolve, make_pool, price, text):
    with pytest.raises(CostError, match=text) as error:
        resolve(BUY | {"price": price}, make_pool())
    assert len({problem.text for problem in error.value.problems}) == 1


def test_missing_prices_name_the_file_and_the_key_all_at_once(resolve, make_pool):
    with pytest.raises(CostError) as error:
        resolve(BUY, make_pool(gpu="a40", server="box"), make_pool(server="tower"), site=None)
    text = str(error.value)
    assert "data/prices/a40.yaml, or quote it (cost.quotes.a40)" in text
    assert "data/prices/tower.yaml, or quote it (cost.quotes.tower)" in text
    assert "buying needs a site" in text
    assert text.count("tower.yaml") == 1


def test_server_price_must_state_included_gpus(resolve, make_pool):
    with pytest.raises(CostError, match=r"silent/one does not say .* includes_gpus to data/prices/silent.yaml"):
        resolve(BUY, make_pool(server="silent"))


def test_buying_needs_finance_and_metered_electricity_a_tariff(resolve, make_pool):
    with pytest.raises(CostError) as error:
        resolve(BUY, make_pool(), finance=None, site={"pue": 1.2})
    assert set(problems(error)) == {"finance", "site.electricity_usd_per_kwh"}


def test_a_price_in_another_currency_needs_a_rate(resolve, make_pool):
    cost = BUY | {"quotes": {"card": {"price": 15_000, "currency": "RMB"}}}
    with pytest.raises(CostError, match="US dollars per RMB"):
        resolve(cost, make_pool())
    plan = resolve(cost, make_pool(), finance={"method": "straight_line", "life_years": 3, "fx": {"RMB": 0.14}})
    assert plan.capex_usd == pytest.approx(4 * 15_000 * 0.14 + 3400)
    gpus = next(charge for charge in plan.charges if charge.component == "gpu_capital")
    assert (gpus.price.currency, gpus.price.fx_rate) == ("RMB", 0.14)
    assert gpus.price.usd == pytest.approx(15_000 * 0.14 / HOUR_OF_3_YEARS)


def test_whole_racks_and_fractions(resolve, make_pool):
    pool = make_pool(replicas=3, nameplate_w=10_000)
    assert per_month(resolve(BUY, pool, site=site(**RACK))) == pytest.approx(1.5 * 1500)
    assert per_month(resolve(BUY, pool, site=site(**RACK | {"count": "whole"}))) == pytest.approx(2 * 1500)


@pytest.mark.parametrize(("limit_kw", "racks"), [(20.4, 2), (30.6, 4 / 3), (10.2, 4), (100, 1)])
def test_the_power_limit_of_a_rack_binds(resolve, make_pool, limit_kw, racks):
    hosting = RACK | {"power_limit_kw": limit_kw, "servers_per_rack": 4}
    plan = resolve(BUY, make_pool(replicas=4, nameplate_w=10_200), site=site(**hosting))
    assert per_month(plan) == pytest.approx(racks * 1500)


def test_a_server_that_no_rack_can_power_is_refused(resolve, make_pool):
    with pytest.raises(CostError, match=r"box draws up to 10\.2 kW, a rack gives 8"):
        resolve(BUY, make_pool(nameplate_w=10_200), site=site(**RACK | {"power_limit_kw": 8}))


def test_contracted_power_is_the_nameplate_or_a_number(resolve, make_pool):
    pools = make_pool("a", replicas=2), make_pool("b", server="full", slots=8, gpus=8, nameplate_w=10_000)
    by_nameplate = resolve(BUY, *pools, site=site(per="kw_month", usd=250))
    assert per_month(by_nameplate) == pytest.approx(250 * (2 * 2 + 10))
    stated = resolve(BUY, *pools, site=site(per="kw_month", usd=250, kw=7))
    assert per_month(stated) == pytest.approx(250 * 7)


def test_hosting_that_includes_electricity_leaves_no_energy_charge(resolve, make_pool):
    plan = resolve(
        BUY, make_pool(), site={"pue": 1.5, "hosting": {"per": "kw_month", "usd": 250, "electricity": "included"}}
    )
    assert "energy" not in {charge.component for charge in plan.charges}
    assert "Hosting includes electricity: energy is metered and not charged." in plan.notes


def test_missing_hosting_is_reported(resolve, make_pool):
    assert Site.model_validate({"pue": 1.2, "electricity_usd_per_kwh": 0.1, "hosting": "none"}).hosting is None
    assert "No hosting is charged: space, racks and cooling plant are left out." in resolve(BUY, make_pool()).notes


def test_gpus_without_a_server_are_charged_alone(resolve, make_pool):
    plan = resolve(BUY, make_pool(server=""), site=site(per="kw_month", usd=100))
    assert plan.capex_usd == 4 * 1900
    assert per_month(plan) == pytest.approx(100 * 4 * 0.4)
    with pytest.raises(CostError, match="name a server"):
        resolve(BUY, make_pool(server=""), site=site(**RACK))


def test_rent_is_per_gpu_hour_and_nothing_else(resolve, make_pool):
    plan = resolve(
        {"acquisition": "rent", "price": "card/cloud"}, make_pool(gpus=2, replicas=3), site=None, finance=None
    )
    (charge,) = plan.charges
    assert (charge.component, charge.units_per_h, charge.price.usd, charge.price.unit) == ("rental", 6, 0.4, "GPU-h")
    assert plan.capex_usd == 0
    assert "electricity" in plan.notes[0]


def test_a_rent_quote_is_dollars_per_gpu_hour(resolve, make_pool):
    plan = resolve({"acquisition": "rent", "quotes": {"card": 0.3}}, make_pool(), finance=None)
    assert per_month(plan, "rental") == pytest.approx(4 * 0.3 * 730)


@pytest.mark.parametrize(("share", "instances"), [(False, 2), (True, 1.5)])
def test_whole_instances_are_rented_by_the_day_unless_shared(resolve, make_pool, share, instances):
    cost = {"acquisition": "rent", "price": "cluster/day", "share": share}
    finance = {"method": "straight_line", "life_years": 1, "fx": {"RMB": 0.14}}
    plan = resolve(cost, make_pool(gpus=4, replicas=3), finance=finance)
    assert per_month(plan, "rental") == pytest.approx(instances * 2000 * 0.14 * 730 / 24)


@pytest.mark.parametrize(
    ("price", "text"),
    [
        (None, "no rental price for 'card'"),
        ("a40/lambda", r"add the offer 'lambda' to data/prices/a40\.yaml"),
        ("card/clod", "did you mean cloud"),
        ("card/new", "is a price per each"),
    ],
)
def test_a_wrong_rental_price_is_one_clear_error(resolve, make_pool, price, text):
    with pytest.raises(CostError, match=text):
        resolve({"acquisition": "rent", "price": price}, make_pool())


def test_one_rental_price_for_two_kinds_of_gpu_is_refused(resolve, make_pool):
    pools = make_pool("a"), make_pool("b", gpu="other")
    with pytest.raises(CostError, match=r"different GPUs \(card, other\)"):
        resolve({"acquisition": "rent", "price": "card/cloud"}, *pools)
    plan = resolve({"acquisition": "rent", "price": "card/cloud", "quotes": {"other": 1.0}}, *pools)
    assert per_month(plan, "rental") == pytest.approx(4 * (0.4 + 1.0) * 730)


@pytest.mark.parametrize(
    "wrong",
    [
        {"acquisition": "steal"},
        {"acquisition": "buy", "price": 1900},
        {"acquisition": "buy", "quotes": {"card": -1}},
        {"acquisition": "buy", "quotes": {"card": "cheap"}},
        {"acquisition": "buy", "quotes": {"card": True}},
    ],
)
def test_a_wrong_cost_is_refused(resolve, make_pool, wrong):
    with pytest.raises(ValidationError):
        resolve(wrong, make_pool())


@pytest.mark.parametrize(
    "wrong",
    [
        {"electricity_usd_per_kwh": 0.1},
        {"electricity_usd_per_kwh": 0.1, "pue": 0.9},
        {"electricity_usd_per_kwh": -0.1, "pue": 1.1},
        {"pue": 1.1, "hosting": {"per": "rack", "usd_per_month": 1500, "power_limit_kw": 20, "servers_per_rack": 2}},
        {"pue": 1.1, "hosting": {"per": "square_metre"}},
        {"pue": 1.1, "hosting": "nothing"},
    ],
)
def test_a_wrong_site_is_refused(wrong):
    with pytest.raises(ValidationError):
        Site.model_validate(wrong)


def test_wrong_numbers_are_one_line_each(resolve, make_pool):
    for wrong in ("namplate", 0, None):
        with pytest.raises(ValidationError, match="contracted kW above 0 or nameplate is needed") as error:
            Site.model_validate(site(per="kw_month", usd=250, kw=wrong))
        assert error.value.error_count() == 1
    with pytest.raises(ValidationError, match=r"US dollars or \{price"):
        resolve(BUY | {"quotes": {"card": "cheap"}}, make_pool())


def test_electricity_of_unknown_power_is_an_error_and_not_free(resolve, make_pool):
    with pytest.raises(CostError, match=r"add tdp_w to data/gpus/card\.yaml"):
        resolve(BUY, make_pool(tdp_w=None))
    included = {"pue": 1.5, "hosting": {"per": "kw_month", "usd": 250, "electricity": "included"}}
    assert resolve(BUY, make_pool(tdp_w=None), site=included).capex_usd > 0


def test_one_currency_has_one_rate_under_all_of_its_names(resolve, make_pool):
    # data/prices has prices in RMB, ISO 4217 calls the currency CNY
    found = []
    for price, rate in (("RMB", "RMB"), ("RMB", "CNY"), ("CNY", "RMB"), ("CNY", "CNY")):
        finance = {"method": "straight_line", "life_years": 3, "fx": {rate: 0.14}, "currency": price}
        plan = resolve(BUY | {"quotes": {"card": {"price": 15_000, "currency": price}}}, make_pool(), finance=finance)
        found.append((plan.capex_usd, plan.usd_per_currency))
    assert found == [(3400 + 4 * 15_000 * 0.14, 0.14)] * 4
    with pytest.raises(ValidationError, match="one currency twice, as RMB and CNY"):
        resolve(BUY, make_pool(), finance={"method": "straight_line", "life_years": 3, "fx": {"RMB": 1, "CNY": 1}})


@pytest.mark.parametrize(("code", "meant"), [("EURO", "EUR"), ("usd", "USD"), ("JPN", "JPY")])
def test_a_code_that_no_currency_has_is_refused_with_the_nearest(code, meant):
    for holder in ({"price": 1, "currency": code}, {"price": 1, "currency": "ZZZ"}):
        with pytest.raises(ValidationError, match="code of ISO 4217") as error:
            TypeAdapter(Price).validate_python(holder)
        assert (f"did you mean {meant}?" in str(error.value)) is (holder["currency"] == code)
    assert TypeAdapter(Price).validate_python({"price": 1, "currency": meant}).currency == meant
