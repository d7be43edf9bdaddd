"""Rounds of a watch: resumed without loss, drift found, clocks and gaps said, answers in all forms."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_up_fleet import HOUR_S, START, Here, MadeUpFleet
from rich.cells import cell_len
from small_scenario import TINY, variant

from sim.catalogue.catalog import load_catalog
from sim.language import speaking
from sim.report.terminal_table import folded
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.study.capacity import FleetCapacity
from sim.watch.answer import WatchAnswer, json_lines, lines, metrics_text, page
from sim.watch.predicted import Twin, why_not_watched
from sim.watch.rounds import Watch, WatchOptions
from sim.watch.storage import FILE, Storage
from sim.yamlio import Document, parse

ONE_AT_A_TIME = variant(
    TINY,
    {"workload.lengths.output": {"distribution": "fixed", "value": 10}, "fleets.0.pools.0.batching.max_num_seqs": 1},
)


def scenario(text: str = ONE_AT_A_TIME) -> Scenario:
    return load(Document("tiny.yaml", parse(text), None), (), catalog=load_catalog())


@pytest.fixture(scope="module", autouse=True)
def known_capacity() -> Iterator[None]:
    """A capacity that is not searched: tests/study has the search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Twin, "capacity", lambda *_: FleetCapacity("a", 9.0, 0.5, ()))
        yield


def watch_of(out: Path, fleet: MadeUpFleet, **options: float) -> Watch:
    read = scenario()
    out.mkdir(exist_ok=True)
    storage = Storage(out / FILE, "")
    return Watch(
        read, read.fleets[0], load_catalog(), out, Here(), fleet, storage, WatchOptions(**options), fleet.now_s
    )


@pytest.mark.slow
def test_a_restart_gives_the_same_bytes(tmp_path: Path) -> None:
    whole = watch_of(tmp_path / "whole", MadeUpFleet(hours=30))
    whole.read()
    for hours in (7, 19, 30):
        parts = watch_of(tmp_path / "parts", MadeUpFleet(hours=hours))
        parts.read()
    assert json_lines(parts.evaluate()) == json_lines(whole.evaluate())
    assert parts.read() == 0
    assert not any(start < START + 18 * HOUR_S for start, _ in parts.source.asked)  # only what is new was read


@pytest.mark.slow
def test_each_hour_has_a_line_with_its_own_values(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, MadeUpFleet(hours=4, gap=range(70, 110)))
    watch.read()
    answer = watch.evaluate()
    found = [json.loads(line) for line in json_lines(answer)]
    assert all({"observed", "predicted", "drift", "forecast", "order_date"} <= one.keys() for one in found)
    assert [one["hour"] for one in found] == [f"2026-01-05 0{hour}:00Z" for hour in range(4)]
    assert [one["observed"] and one["observed"]["hour"] for one in found] == [
        START, None, START + 2 * HOUR_S, START + 3 * HOUR_S
    ]  # fmt: skip
    for one in (found[0], found[3]):
        ratio = one["observed"]["ttft_s_mean"] / one["predicted"]["ttft_s_mean"]
        assert one["drift"]["ttft_s_mean"]["ratio"] == pytest.approx(ratio)
    for since, count in ((START + 2 * HOUR_S, 2), (watch.storage.end, 1)):
        assert json_lines(answer, since) == json_lines(answer)[-count:]


@cache
def drifted(folder: Path) -> WatchAnswer:
    fleet = MadeUpFleet(hours=24 * 9, growth_per_week=0.2, slower_from=24 * 8, gap=range(3000, 3200), restart_at=5000)
    watch = watch_of(folder, fleet, lead_days=7.0, ahead_days=30.0)
    watch.read()
    return watch.evaluate()


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> WatchAnswer:
    return drifted(tmp_path_factory.mktemp("drifted"))


@pytest.mark.slow
def test_a_slower_server_raises_an_alarm_within_a_day(answer: WatchAnswer) -> None:
    [alarm] = [one for one in answer.alarms if one.metric == "tpot_s_mean"]
    assert alarm.since == START + 24 * 8 * HOUR_S
    assert alarm.raised < alarm.since + 24 * HOUR_S
    assert alarm.ratio == pytest.approx(1.3, rel=0.03)
    assert any("not computed from a whole GPU" in one.note for one in answer.calibrations)


@pytest.mark.slow
def test_answers_fit_a_terminal_and_are_the_same_in_all_forms(answer: WatchAnswer) -> None:
    said = [one for one in lines(answer) if isinstance(one, str)]
    assert said[0].startswith("a ")
    assert all(cell_len(line) <= 80 for one in said for line in folded(one, 80))
    found = json.loads(json_lines(answer)[-1])
    assert {"observed", "predicted", "drift", "forecast", "order_date"} <= found.keys()
    assert found["verdict"] == said[0]
    assert re.search(r'^gpufleet_watch_observed\{metric="ttft_s_mean"\} 0\.02', metrics_text(answer), re.MULTILINE)
    html = page(answer)
    assert said[0] in html
    assert "http://made.up" not in html
    with speaking("zh"):
        assert lines(answer)[0] != said[0]


@pytest.mark.slow
def test_gaps_and_restarts_are_said(answer: WatchAnswer) -> None:
    notes = " ".join(answer.notes)
    assert "4 of 216 hours have less" in notes
    assert "restarted 1 times" in notes


@pytest.mark.slow
def test_a_wrong_clock_is_said_and_missing_histograms_are_left_out(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, MadeUpFleet(hours=2, without="time_to_first"))
    watch.clock = lambda: START + 2 * HOUR_S - 3297.0
    assert watch.read() == 2
    answer = watch.evaluate()
    notes = " ".join(answer.notes)
    assert "clock is 3,600 s ahead of" in notes
    assert "no histogram of TTFT" in notes
    watch.source = MadeUpFleet(hours=0)
    assert watch.read() == 0
    assert "before the last stored hour" in " ".join(watch.notes)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"slo": ...}, "slo: a capacity needs"),
        ({"workload.arrivals": {"process": "closed_loop", "concurrency": 4}}, "has the load concurrency"),
    ],
)
def test_scenarios_without_a_rate_or_a_service_level_are_refused(values: dict[str, Any], text: str) -> None:
    plain = scenario()
    assert why_not_watched(plain, plain.fleets[0]) == ""
    read = scenario(variant(ONE_AT_A_TIME, values))
    assert text in why_not_watched(read, read.fleets[0])
