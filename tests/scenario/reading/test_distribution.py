"""Distributions in place of numbers: what they are, how they are read, and what is refused."""

from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.distribution import Uncertain
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.yamlio import dump, parse

POOL = {"gpu": "rtx-4090", "server": "workstation-4x4090"}
SCENARIO = {
    "model": "qwen2.5-7b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 2},
        "lengths": {side: {"distribution": "fixed", "value": 100} for side in ("prompt", "output")},
    },
    "horizon_s": 60,
    "fleets": [{"name": "own", "pools": [POOL], "cost": {"acquisition": "buy", "quotes": {"rtx-4090": 1900}}}],
    "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.4, "hosting": "none"},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4},
    "sweep": {"workload.arrivals.rate_rps": [1, 3]},
}
MIDDLES = (np.arange(20_000) + 0.5) / 20_000


def mean(text: str) -> float:
    return float(Uncertain.model_validate(parse(text)).distribution.quantile(MIDDLES).mean())


def read(folder: Path, *sets: str, **more) -> Scenario:
    path = folder / "trial.yaml"
    path.write_text(dump(SCENARIO | more))
    return load(path, sets, catalog=load_catalog())


def line_of(folder: Path, start: str) -> int:
    lines = (folder / "trial.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.startswith(start))


def mistakes(folder: Path, *sets: str, **more) -> list[str]:
    with pytest.raises(ScenarioErrors) as caught:
        read(folder, *sets, **more)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_means_are_those_of_the_textbook() -> None:
    # Law, "Simulation Modeling and Analysis": (a + b + c) / 3, (a + b) / 2; a cut on both sides moves no normal's mean
    assert mean("{triangular: [1, 2, 6]}") == pytest.approx(3, rel=1e-6)
    assert mean("{uniform: [1, 6]}") == pytest.approx(3.5, rel=1e-9)
    assert mean("{normal: [3, 0.5]}") == pytest.approx(3, rel=1e-9)
    assert mean("{lognormal: [2, 0.5]}") == pytest.approx(2, rel=1e-3)
    # the mean of a normal that is cut below its mean is mean + sd * phi(0) / (1 - Phi(0)), but for the cut at 4 sd
    assert mean("{normal: {mean: 0, sd: 1, low: 0}}") == pytest.approx(sqrt(2 / np.pi), rel=1e-3)


def test_quantiles_are_those_of_the_textbook() -> None:
    # triangular: F(x) = (x-a)^2 / ((b-a)(c-a)) below the mode: F(2) = 1/5, and 1 - (b-x)^2 / ((b-a)(b-c)) above
    triangular = Uncertain.model_validate({"triangular": [1, 2, 6]})
    assert triangular.quantiles(0, 0.2, 0.8, 1) == pytest.approx([1, 2, 4, 6])
    # Phi^-1(0.975) = 1.95996; a cut at 4 sd moves it by less than 1e-3
    assert Uncertain.model_validate({"normal": [10, 2]}).quantiles(0.975)[0] == pytest.approx(13.92, abs=2e-3)
    # the median of a lognormal is mean / sqrt(1 + cv^2)
    assert Uncertain.model_validate({"lognormal": [2, 0.5]}).quantiles(0.5)[0] == pytest.approx(2 / sqrt(1.25))


@pytest.mark.slow
@given(st.floats(0.001, 1e4), st.sampled_from(["triangular", "uniform", "normal", "lognormal"]))
def test_without_spread_every_draw_is_the_number_itself(value: float, family: str) -> None:
    numbers = {"triangular": [value] * 3, "uniform": [value] * 2, "normal": [value, 0], "lognormal": [value, 0]}
    one = Uncertain.model_validate({family: numbers[family]})
    assert one.distribution.central == value
    assert set(one.distribution.quantile(MIDDLES[::500])) == {value}


@pytest.mark.slow
@given(
    st.sampled_from(["{triangular: [1, 2, 6]}", "{uniform: [1, 6]}", "{normal: [3, 1]}", "{lognormal: [3, 2]}"]),
    st.lists(st.floats(0, 1), min_size=2, max_size=5),
)
def test_quantiles_rise_and_stay_within_the_support(text: str, shares: list[float]) -> None:
    one = Uncertain.model_validate(parse(text))
    low, high = one.distribution.support
    values = one.quantiles(*sorted(shares))
    assert values == sorted(values)
    assert low <= values[0] <= values[-1] <= high


def test_the_rest_of_the_program_sees_the_central_value(tmp_path: Path) -> None:
    site = {
        "electricity_usd_per_kwh": {"triangular": [0.1, 0.15, 0.4], "note": "guess"},
        "pue": {"uniform": [1.1, 1.5]},
    }
    finance = SCENARIO["finance"] | {"life_years": {"normal": {"mean": 4, "sd": 0.5}}}
    scenario = read(tmp_path, site=site, finance=finance)
    assert scenario.site is not None
    assert scenario.finance is not None
    assert scenario.site.electricity_usd_per_kwh is not None
    assert scenario.site.electricity_usd_per_kwh.usd == 0.15
    assert (scenario.site.pue, scenario.finance.life_years) == (1.3, 4)
    assert scenario.futures is not None
    found = scenario.futures.inputs
    assert list(found) == ["site.electricity_usd_per_kwh", "site.pue", "finance.life_years"]
    assert found["site.electricity_usd_per_kwh"].note == "guess"
    assert found["site.pue"].stated.endswith(f"trial.yaml:{line_of(tmp_path, '  pue:')}")


def test_a_number_on_the_command_line_takes_a_distribution_away_and_the_reverse(tmp_path: Path) -> None:
    site = SCENARIO["site"] | {"pue": {"uniform": [1.1, 1.5]}}
    quote = "fleets.own.cost.quotes.rtx-4090={lognormal: [1900, 0.2]}"
    scenario = read(tmp_path, "site.pue=1.2", quote, "futures.draws=300", site=site)
    assert scenario.futures is not None
    assert scenario.site is not None
    assert scenario.site.pue == 1.2
    assert list(scenario.futures.inputs) == ["fleets.own.cost.quotes.rtx-4090"]
    assert scenario.futures.draws == 300


def test_another_family_replaces_that_of_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(dump(SCENARIO | {"site": SCENARIO["site"] | {"pue": {"uniform": [1.1, 1.5]}}}))
    path = tmp_path / "over.yaml"
    path.write_text("base: base.yaml\nsite: {pue: {triangular: [1, 1.1, 1.2]}}\n")
    futures = load(path, catalog=load_catalog()).futures
    assert futures is not None
    assert futures.inputs["site.pue"].family == "triangular"


def test_a_stored_scenario_keeps_its_distributions(tmp_path: Path) -> None:
    scenario = read(tmp_path, site=SCENARIO["site"] | {"pue": {"uniform": [1.1, 1.5]}})
    stored = scenario.model_dump(mode="json", exclude_unset=True)
    (tmp_path / "again.yaml").write_text(dump(stored))
    assert load(tmp_path / "again.yaml", catalog=load_catalog()) == scenario


MISTAKES = {
    "{triangular: [1.5, 1.2, 1.4]}": ".triangular: low 1.5, mode 1.2 and high 1.4 must be in ascending order",
    "{uniform: [1.5, 1.2]}": ".uniform: low 1.5 lies above high 1.2",
    "{uniform: [1.5]}": ".uniform: [low, high] is needed, not 1 value",
    "{normal: [1.5, -1]}": ".normal.sd: must be 0 or more, not -1",
    "{normal: {mean: 1.5, sd: 0.1, low: 2}}": ".normal: the mean 1.5 must lie between low and high",
    "{normal: {mean: 1.5, std: 0.1}}": ".normal.std: unknown key; did you mean sd?",
    "{uniform: [a, 2]}": ".uniform.low: a number is needed, not 'a'",
    "{uniform: [1, 2], normal: [1, 2]}": ": one of triangular, uniform, normal, lognormal is needed, not 2",
    "{triangel: [1, 2, 3]}": ".triangel: unknown distribution 'triangel'; did you mean triangular?",
    "{beta: [1, 2]}": ".beta: unknown distribution 'beta'; known here: triangular, uniform, normal, lognormal",
    "{uniform: [0.5, 2]}": ": may be drawn as 0.5: must be 1 or more, not 0.5",
    "{normal: [1.4, 0.2]}": ": may be drawn as 0.6: must be 1 or more, not 0.6; low: and high: narrow the range",
}


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        *(("pue", value, f"site.pue{expected}") for value, expected in MISTAKES.items()),
        ("hosting", "{uniform: [1, 2]}", "site.hosting: a mapping (key: value) is needed, not 1.5"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, where: str, value: str, expected: str) -> None:
    (path := tmp_path / "trial.yaml").write_text(dump(SCENARIO | {"site": None}).replace("site: null\n", ""))
    site = {"electricity_usd_per_kwh": "0.2", "pue": "1.4"} | {where: value}
    lines = ["site:", *(f"  {key}: {text}" for key, text in site.items())]
    path.write_text(path.read_text() + "\n".join(lines) + "\n")
    line = path.read_text().splitlines().index(f"  {where}: {value}") + 1
    with pytest.raises(ScenarioErrors) as caught:
        load(path, catalog=load_catalog())
    assert f"{path}:{line}: {expected}" in str(caught.value).splitlines()


def test_only_money_and_the_load_are_drawn(tmp_path: Path) -> None:
    told = mistakes(tmp_path, horizon_s={"uniform": [60, 90]})
    line = line_of(tmp_path, "horizon_s:")
    assert told[0].startswith(f"trial.yaml:{line}: horizon_s: must be one value: only prices and terms")


def test_a_swept_price_is_not_drawn(tmp_path: Path) -> None:
    site = SCENARIO["site"] | {"pue": {"uniform": [1.1, 1.5]}}
    told = mistakes(tmp_path, site=site, sweep={"site.pue": [1.2, 1.3]})
    assert "site.pue: is swept (sweep: site.pue)" in told[0]


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        (None, "1 to 3 requests/s may be drawn, and costs are interpolated between simulated loads"),
        ({"workload.arrivals.rate_rps": [1, 2]}, "1 to 3 requests/s may be drawn, 1 to 2 are simulated"),
    ],
)
def test_a_drawn_load_lies_between_simulated_ones(tmp_path: Path, sweep: object, expected: str) -> None:
    workload = SCENARIO["workload"] | {"arrivals": {"process": "poisson", "rate_rps": {"uniform": [1, 3]}}}
    assert expected in mistakes(tmp_path, workload=workload, sweep=sweep)[0]
    assert read(tmp_path, workload=workload).workload.mean_rate_rps() == 2


def test_the_load_may_be_drawn_by_an_option(tmp_path: Path) -> None:
    scenario = read(tmp_path, "workload.arrivals.rate_rps={triangular: [1, 1.5, 3]}")
    assert scenario.sweep == {"workload.arrivals.rate_rps": (1, 3)}


def test_draws_without_distributions_are_refused(tmp_path: Path) -> None:
    assert "futures: has nothing to draw" in mistakes(tmp_path, futures={"draws": 500})[0]
    fleets = [{"name": "free", "pools": [POOL]}]
    told = mistakes(tmp_path, fleets=fleets, site=SCENARIO["site"] | {"pue": {"uniform": [1.1, 1.5]}})
    assert "no fleet has a cost" in told[0]


def test_a_lognormal_is_cut_at_four_standard_deviations_of_its_logarithm() -> None:
    low, high = Uncertain.model_validate({"lognormal": [1, 1]}).distribution.support
    sigma = sqrt(np.log(2))
    assert low == pytest.approx(exp(-(sigma**2) / 2 - 4 * sigma))
    assert high == pytest.approx(exp(-(sigma**2) / 2 + 4 * sigma))
