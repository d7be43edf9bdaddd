"""OTLP files: the hours that Prometheus' answers give, whatever the form of the files, and a line for each mistake."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_fleet import BOUNDS, HOUR_S, START, MadeUpFleet

from sim.watch.observed import BRIDGED_S, STEP_S, HourObserved, observed_hours
from sim.watch.otlp import OtlpError, OtlpFiles, matcher_of
from sim.watch.source import LacksMetrics, MixedSeries, Source

HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_prompt_tokens",
)
CUMULATIVE, DELTA = 2, 1


def attributes(**values: str) -> list[Any]:
    return [{"key": key.replace("_name", ".name") if key == "service_name" else key, "value": {"stringValue": value}}
            for key, value in values.items()]  # fmt: skip


def export(metrics: Sequence[Any], instance: str = "a:8000", **more: str) -> str:
    own = attributes(**{"service.name": "vllm", "service.instance.id": instance, **more})
    return json.dumps({"resourceMetrics": [{"resource": {"attributes": own}, "scopeMetrics": [{"metrics": metrics}]}]})


def number(
    name: str, value: float, at_s: float, start_s: float = 0.0, temporality: int = CUMULATIVE, **more: Any
) -> Any:
    point = {"attributes": attributes(model_name="m"), "asDouble": value, **times(at_s, start_s), **more}
    return {"name": name, "sum": {"aggregationTemporality": temporality, "isMonotonic": True, "dataPoints": [point]}}


def times(at_s: float, start_s: float) -> dict[str, str]:
    return {"timeUnixNano": str(round(at_s * 1e9)), "startTimeUnixNano": str(round(start_s * 1e9))}


def exports(fleet: MadeUpFleet, temporality: int = CUMULATIVE, exponential: bool = False) -> list[str]:
    """Exports of a collector that reads the /metrics of *fleet* each minute."""
    counts = fleet.counts()
    size = len(next(iter(counts.values())))
    before = {name: np.concatenate([[0.0], values[:-1]]) for name, values in counts.items()}
    found = []
    for place in range(size):
        if place in fleet.gap or (temporality == DELTA and not place):
            continue
        start = place - 1 if temporality == DELTA else fleet.restart_at if place >= fleet.restart_at else 0
        own = {"attributes": attributes(model_name="m"), **times(START + 60 * place, START + 60 * start)}

        def value(name: str, place: int = place) -> float:
            gone = before[name][place] if temporality == DELTA else 0.0
            return float(counts[name][place] - gone)

        metrics = [
            number(f"vllm:{name}", value(f"{name}"), START + 60 * place, START + 60 * start, temporality)
            for name in ("prompt_tokens_total", "generation_tokens_total")
        ]
        running = {**own, "asInt": "1"}
        metrics.append({"name": "vllm:num_requests_running", "gauge": {"dataPoints": [running]}})
        for name in HISTOGRAMS:
            point: dict[str, Any] = {**own, "count": str(value(f"{name}_count")), "sum": value(f"{name}_sum")}
            kind = "histogram"
            if name == HISTOGRAMS[0] and exponential:
                kind = "exponentialHistogram"
                offset = int(np.floor(np.log2(0.02) * 8))  # the bucket of 0.02 s
                point |= {"scale": 3, "positive": {"offset": offset, "bucketCounts": [point["count"]]}}
            elif name == HISTOGRAMS[0]:
                upto = [value(f'{name}_bucket{{le="{bound}"}}') for bound in BOUNDS]
                point |= {
                    "explicitBounds": BOUNDS[:-1],
                    "bucketCounts": [str(one) for one in np.diff(upto, prepend=0.0)],
                }
            metrics.append(
                {"name": f"vllm:{name}", kind: {"aggregationTemporality": temporality, "dataPoints": [point]}}
            )
        found.append(export(metrics))
    return found


def hours_of(source: Source, hours: int) -> list[HourObserved]:
    series = source.engine_series(START - BRIDGED_S, START + hours * HOUR_S, STEP_S, every=False)
    return observed_hours(series, [], START, hours, source.shown)


def written(folder: Path, *lines: str, name: str = "metrics.json") -> Path:
    file = folder / name
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def figures_of(hours: Sequence[HourObserved], but: str = "") -> list[Any]:
    return [
        figure for one in hours for name in HourObserved.__slots__ if name != but for figure in [getattr(one, name)]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "form"),
    [
        ({}, {}),
        ({"restart_at": 70}, {}),
        ({"gap": range(65, 70)}, {}),
        ({"gap": range(65, 110)}, {}),
        ({}, {"temporality": DELTA}),
        ({}, {"exponential": True}),
    ],
)
def test_files_and_prometheus_give_the_same_hours(
    tmp_path: Path, how: Mapping[str, Any], form: Mapping[str, Any]
) -> None:
    fleet = MadeUpFleet(hours=2, **how)
    source = OtlpFiles([written(tmp_path, *exports(fleet, **form))])
    assert source.now_s() == START + 2 * HOUR_S
    but = "ttft_s_p95" if "exponential" in form else ""
    assert figures_of(hours_of(source, 2), but) == pytest.approx(figures_of(hours_of(fleet, 2), but))
    assert source.first_s(START - 5 * HOUR_S, START + 2 * HOUR_S) == START
    for one in hours_of(source, 2):
        if "exponential" in form:
            assert one.ttft_s_p95 == pytest.approx(0.02, rel=0.2)


@pytest.mark.slow
def test_files_that_grow_are_rotated_and_packed_are_read_once(tmp_path: Path) -> None:
    fleet = MadeUpFleet(hours=1)
    lines, path = exports(fleet), tmp_path / "metrics.json"
    source = OtlpFiles([path])
    path.write_text("".join(f"{line}\n" for line in lines[:20]) + lines[20][:50])
    assert source.now_s() == START + 19 * 60
    assert "is not finished" in source.clock_notes(START, START)[0]
    written(tmp_path, *lines[:25])
    assert source.now_s() == START + 24 * 60
    written(tmp_path, *lines[:30])
    path.rename(tmp_path / "metrics-2026-01-05T00-30-00.000.json")
    written(tmp_path, *lines[30:40])
    (tmp_path / "metrics-other.json").write_text("no metrics")
    assert source.now_s() == START + 39 * 60
    path.rename(rotated := tmp_path / "metrics-2026-01-05T00-40-00.000.json")
    rotated.with_suffix(".json.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    written(tmp_path, *lines[40:])
    assert source.now_s() == START + HOUR_S
    later = OtlpFiles([path])
    later.now_s()
    for one in (source, later):
        assert figures_of(hours_of(one, 1)) == pytest.approx(figures_of(hours_of(fleet, 1)))


def test_a_start_time_tells_a_restart_that_the_values_hide_but_not_that_of_a_collector(tmp_path: Path) -> None:
    name, at = "vllm:prompt_tokens_total", [START + 60.0 * place for place in range(1, 6)]
    starts, values = [START, START, at[1] + 30, at[1] + 30, at[4]], [10.0, 20.0, 50.0, 60.0, 65.0]
    rows = [export([number(name, value, when, start)]) for value, when, start in zip(values, at, starts, strict=True)]
    source = OtlpFiles([written(tmp_path, *rows)])
    source.now_s()
    [hour] = hours_of(source, 1)
    assert (hour.restarts, hour.covered_s) == (1, 240.0)
    assert hour.output_tokens_per_s is None
    series = source.engine_series(START, START + 600, STEP_S)
    [points] = series.values()
    assert getattr(points, "restarts") == {at[2]}  # noqa: B009


def test_an_ended_series_has_no_samples_and_several_instances_are_servers(tmp_path: Path) -> None:
    count = "vllm:request_success_total"
    ended = number(count, 0.0, START + 120, START, flags=1)
    rows = [
        export([number(count, 5.0, START + 60, START)]),
        export([number(count, 7.0, START + 60, START)], "b:8000"),
        export([ended]),
        export([number(count, 9.0, START + 180, START)], "b:8000"),
    ]
    source = OtlpFiles([written(tmp_path, *rows)])
    source.now_s()
    found = source.engine_series(START, START + 240, STEP_S)
    assert {dict(labels)["instance"]: dict(points) for (_, labels), points in found.items()} == {
        "a:8000": {START + 60: 5.0},
        "b:8000": {START + 60: 7.0, START + 120: 7.0, START + 180: 9.0, START + 240: 9.0},
    }


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['{"resourceSpans": []}'], r"metrics.json:2: has traces, not metrics"),
        (['{"resourceLogs": []}'], r"metrics.json:2: has logs, not metrics"),
        (["{broken", "[1]"], r"metrics.json:2: is not JSON\n.*:3: is no export of OTLP metrics"),
        (
            [export([{"name": "vllm:prompt_tokens_total", "sum": {"dataPoints": [{}]}}])],
            r"metrics.json:2: holds a metric",
        ),
        ([export([number("vllm:prompt_tokens_total", 1, 5, temporality=0)])], r"metrics.json:2: holds a metric"),
        ([export([number("vllm:prompt_tokens_total", -1, START + 60)])], r"metrics.json:2: holds a metric"),
    ],
)
def test_mistakes_are_listed_with_their_lines(tmp_path: Path, lines: Sequence[str], text: str) -> None:
    good = export([number("vllm:prompt_tokens_total", 1.0, START)])
    source = OtlpFiles([written(tmp_path, good, *lines)])
    with pytest.raises(OtlpError, match=text):
        source.now_s()
    assert source.now_s() == START  # the watch goes on without these lines


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (b"\x28\xb5\x2f\xfd\0", OtlpError, "set `format: json`"),
        (gzip.compress(b"{}" * 99, mtime=0)[:-9], OtlpError, "damaged or cut off"),
        (b'{"resourceMetrics": []}\n', LacksMetrics, "has no metrics of vLLM or SGLang"),
        (None, OtlpError, "cannot be read: no such file"),
    ],
)
def test_files_that_are_no_metrics_are_a_line(tmp_path: Path, content: bytes | None, error: type, text: str) -> None:
    file = tmp_path / "metrics.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(error, match=text):
        OtlpFiles([file]).now_s()


def test_several_models_are_refused_and_matchers_choose(tmp_path: Path) -> None:
    name = "vllm:e2e_request_latency_seconds"
    points = [{"attributes": attributes(model_name=one), "count": "1", **times(START, 0)} for one in ("m", "other")]
    file = written(tmp_path, export([{"name": name, "histogram": {"aggregationTemporality": 2, "dataPoints": points}}]))
    source = OtlpFiles([file])
    source.now_s()
    with pytest.raises(MixedSeries, match=r"several models \(m, other\)"):
        source.first_s(START, START + 60)
    chosen = OtlpFiles([file], 'instance="a:8000",model_name=~"o.*"')
    chosen.now_s()
    [((_, labels), _)] = chosen.engine_series(START, START + 60, STEP_S, every=False).items()
    assert dict(labels) == {"instance": "a:8000", "job": "vllm", "model_name": "other"}
    with pytest.raises(LacksMetrics, match="that --match"):
        OtlpFiles([file], 'job="x"').now_s()


@pytest.mark.parametrize("first", ["", '{"resourceMetrics": []}'])
def test_files_that_begin_alike_are_all_read(tmp_path: Path, first: str) -> None:
    files = []
    for instance in ("a:8000", "b:8000"):
        files.append(tmp_path / f"{instance[0]}.json")
        row = export([number("vllm:request_success_total", 1.0, START, START - 60)], instance)
        files[-1].write_text(f"{first}\n{row}\n")
    source = OtlpFiles(files)
    source.now_s()
    assert len(source.engine_series(START, START, STEP_S)) == 2


def test_deltas_that_come_late_or_twice_count_once(tmp_path: Path) -> None:
    at = [START + 60.0 * place for place in (1, 2, 4, 3, 4, 5)]
    rows = [export([number("vllm:request_success_total", 10.0, when, when - 60, DELTA)]) for when in at]
    source = OtlpFiles([written(tmp_path, *rows)])
    source.now_s()
    [points] = source.engine_series(START, START + 300, STEP_S).values()
    assert (points[START], points[START + 300]) == (0.0, 50.0)


def test_two_servers_with_the_same_labels_are_refused(tmp_path: Path) -> None:
    rows = [export([number("vllm:request_success_total", value, START)]) for value in (5.0, 5.0, 7.0)]
    with pytest.raises(OtlpError, match=r"metrics.json:3: has two servers with the same labels"):
        OtlpFiles([written(tmp_path, *rows)]).now_s()


def test_a_line_of_traces_or_of_a_wrong_clock_hides_no_later_line(tmp_path: Path) -> None:
    ahead, later = (export([number("vllm:request_success_total", 1.0, START + time)]) for time in (9e8, 60.0))
    source = OtlpFiles([written(tmp_path, ahead, *['{"resourceSpans": []}'] * 30, later)], clock=lambda: START)
    with pytest.raises(OtlpError, match=r"^\S*:1: holds a metric that[^\n]*\n\S*:2: has traces[^\n]*$"):
        source.now_s()
    assert source.now_s() == START + 60


@pytest.mark.parametrize("text", ["job=vllm", 'job="a" model="b"', 'job=~"("', "job"])
def test_malformed_matchers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"job|model|="):
        matcher_of(text)
