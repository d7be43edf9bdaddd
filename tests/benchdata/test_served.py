"""Metrics, spans and reports of a server become traffic and a row; unreadable ones are reported with their line."""

import json
from collections.abc import Callable
from math import exp, inf, log
from pathlib import Path
from statistics import NormalDist, fmean, pstdev
from typing import Any

import pytest

from sim.benchdata import BenchdataError
from sim.benchdata.served import fragment, read_rows, traffic_files
from sim.benchdata.served.lengths import Histogram
from sim.benchdata.served.traffic import runs_of_recording

LABEL = 'engine="0",model_name="meta-llama/Llama-3.1-8B"'


def histogram(name: str, ends: dict[str, float], total: float, label: str = LABEL) -> str:
    lines = [f'{name}_bucket{{{label},le="{end}"}} {count}' for end, count in ends.items()]
    count = list(ends.values())[-1]
    return "\n".join([*lines, f"{name}_count{{{label}}} {count}", f"{name}_sum{{{label}}} {total}"]) + "\n"


def page(requests: int, engine: str = "vllm", label: str = LABEL, waiting: int = 0) -> str:
    """Return a page of /metrics after *requests* requests with 400 prompt tokens each (100 cached) and answers of
    20."""
    prompt, output = ("request_prompt_tokens", "request_generation_tokens")
    cached, asked, running, queue = (
        "prefix_cache_hits_total", "prefix_cache_queries_total", "num_requests_running", "num_requests_waiting"
    )  # fmt: skip
    if engine == "sglang":
        prompt, output = ("prompt_tokens_histogram", "generation_tokens_histogram")
        cached, asked, running, queue = (
            "cached_tokens_total",
            "prompt_tokens_total",
            "num_running_reqs",
            "num_queue_reqs",
        )
    half = requests / 2
    of = f"{engine}:"
    return (
        "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e+09\n"
        + histogram(of + prompt, {"200.0": half, "600.0": requests, "+Inf": requests}, 400 * requests, label)
        + histogram(of + output, {"20.0": requests, "+Inf": requests}, 20 * requests, label)
        + histogram(of + "time_to_first_token_seconds", {"0.1": requests, "+Inf": requests}, 0.05 * requests, label)
        + histogram(
            of + "inter_token_latency_seconds", {"0.02": 19 * requests, "+Inf": 19 * requests}, 0.19 * requests, label
        )
        + f"{of}{cached}{{{label}}} {100 * requests}\n{of}{asked}{{{label}}} {400 * requests}\n"
        + f"{of}{running}{{{label}}} 2\n{of}{queue}{{{label}}} {waiting}\n"
    )


def written(folder: Path, **texts: str) -> list[Path]:
    paths = [folder / f"{name}.prom" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_two_pages_are_a_rate_lengths_and_means(tmp_path: Path, engine: str) -> None:
    pages = written(tmp_path, a=page(100, engine), b=page(400, engine))
    [row], [seen] = read_rows(pages, "l40s", ["tp=1", "precision=fp8"], [60.0])
    assert (row.gpu, row.precision, row.load) == ("l40s", "fp8", "poisson")
    assert row.rate_req_s == pytest.approx(5.0)
    assert row.measured == pytest.approx({"tpot_mean_ms": 10.0, "ttft_mean_ms": 50.0})
    said = fragment(seen)["workload"]
    assert said["arrivals"] == {"process": "poisson", "rate_rps": 5.0}
    assert said["shared_prefix"] == {"tokens": 100, "prefixes": 1}
    assert said["lengths"]["output"] == {"distribution": "fixed", "value": 20}
    assert said["lengths"]["prompt"]["mean"] == 400.0


@pytest.mark.parametrize("law", [lambda p: NormalDist(6, 0.7).inv_cdf(p), lambda p: log(-300 * log(1 - p))])
def test_the_spread_of_lengths_comes_out_of_buckets(law: Callable[[float], float]) -> None:
    lengths = [exp(law((number + 0.5) / 2000)) for number in range(2000)]
    ends = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, inf)
    buckets = tuple((float(end), float(sum(one <= end for one in lengths))) for end in ends)
    found = Histogram(2000.0, sum(lengths), buckets)
    assert found.plausible
    assert found.cv == pytest.approx(pstdev(lengths) / fmean(lengths), rel=0.05)


def test_equal_lengths_have_no_spread_and_near_ones_little() -> None:
    assert Histogram(10.0, 5120.0, ((500.0, 0.0), (1000.0, 10.0))).cv == 0.0
    assert Histogram(10.0, 5123.0, ((500.0, 0.0), (1000.0, 10.0))).cv == pytest.approx(12.3 / 3**0.5 / 512.3)
    assert Histogram(10.0, 10000.0, ((500.0, 0.0), (1000.0, 5.0), (2000.0, 10.0))).cv < 0.05


def test_a_queue_leaves_time_per_token_at_what_was_in_flight(tmp_path: Path) -> None:
    pages = written(tmp_path, a=page(100), b=page(300, waiting=50), c=page(400, waiting=50))
    [row], [seen] = read_rows([pages[0], pages[2]], "l40s", [], [60.0])
    assert seen.rate_rps == pytest.approx((300 + 50) / 60)  # those that wait came, too
    assert (row.load, row.concurrency, set(row.measured)) == ("closed_loop", 1, {"tpot_mean_ms"})


@pytest.mark.parametrize("queue", [0, 40])
def test_a_queue_with_pages_between_is_what_they_counted(tmp_path: Path, queue: int) -> None:
    """First tokens count only if no request waited before the first page."""
    prompts = f"vllm:prompt_tokens_total{{{LABEL}}} "
    texts = {number: page(number, waiting=50) + f"{prompts}{500 * number}\n" for number in (300, 400)}
    first = page(100, waiting=queue) + f"{prompts}{500 * 100}\n"
    pages = written(tmp_path, a=first, b=texts[300], c=texts[400])
    [row], [seen] = read_rows(pages, "l40s", [], [60.0])
    assert row.counted is not None
    assert (len(row.counted.remaining), row.counted.waiting) == (2, queue)
    assert row.counted.came == ((30.0, 250.0 - queue), (60.0, 350.0 - queue))
    assert set(row.measured) == {"tpot_mean_ms"} | (set() if queue else {"ttft_mean_ms"})
    assert (row.isl, seen.requests) == (500.0, 350 - queue)  # prompts that began, not those of 400 that ended


def test_a_long_queue_is_cut_into_runs_of_as_many_requests() -> None:
    came = [10.0 * page for page in range(301)]
    assert runs_of_recording(came) == [(0, 50), (100, 150), (250, 300)]
    assert runs_of_recording([7.0, 7.0, 7.0]) == [(0, 2)]
    assert runs_of_recording([0.0, 200.0, 5000.0]) == []  # too many for a run, and nobody knows when they came


def test_a_range_query_is_a_row_of_scrapes(tmp_path: Path) -> None:
    series: dict[str, list[Any]] = {}
    for at_s, requests in ((1000.0, 100), (1060.0, 400)):
        for line in page(requests).splitlines():
            if line.startswith("vllm:"):
                name, value = line.rsplit(" ", 1)
                series.setdefault(name, []).append([at_s, value])
    result = []
    for name, values in series.items():
        labels = dict(one.replace('"', "").split("=") for one in name.partition("{")[2].rstrip("}").split(","))
        result.append({"metric": {"__name__": name.partition("{")[0], **labels}, "values": values})
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    (tmp_path / "range.json").write_text(json.dumps(answer))
    [row], [seen] = read_rows([tmp_path / "range.json"], "l40s", [])
    assert seen.rate_rps == pytest.approx(5.0)
    assert row.measured["tpot_mean_ms"] == pytest.approx(10.0)


def test_answers_to_two_queries_need_not_have_the_same_moments(tmp_path: Path) -> None:
    def answer(name: str, begin_s: float, keep: str) -> Path:
        result = []
        for line in page(100).splitlines():
            if line.startswith("vllm:") and keep in line:
                labels = dict(
                    one.replace('"', "").split("=") for one in line[line.index("{") + 1 : line.index("}")].split(",")
                )
                value = float(line.rpartition(" ")[2])
                grows = not line.startswith(("vllm:num_", "process"))
                values = [[begin_s + 15 * k, str(value * (1 + k if grows else 1))] for k in range(5)]
                result.append({"metric": {"__name__": line.partition("{")[0], **labels}, "values": values})
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"data": {"resultType": "matrix", "result": result}}))
        return path

    answers = [answer("a", 1000.0, "_tokens"), answer("b", 1007.0, "_seconds"), answer("c", 1003.0, "num_requests")]
    [row], [seen] = read_rows(answers, "l40s")
    assert (seen.seconds, seen.prompt_tokens, row.load) == (53.0, 400.0, "poisson")
    assert row.measured == pytest.approx({"tpot_mean_ms": 10.0, "ttft_mean_ms": 50.0})


def test_metrics_of_an_opentelemetry_collector_equal_the_pages(tmp_path: Path) -> None:
    def collected(requests: int, at_s: int) -> dict[str, Any]:
        own = {
            "attributes": [{"key": "model_name", "value": {"stringValue": "llama3.1-8b"}}],
            "timeUnixNano": f"{at_s}000000000",
        }
        means = {"request_prompt_tokens": 400.0, "request_generation_tokens": 20.0, "time_to_first_token_seconds": 0.05}
        metrics: list[dict[str, Any]] = [
            {"name": "vllm:num_requests_running", "gauge": {"dataPoints": [{**own, "asDouble": 1.0}]}}
        ]
        for name, mean, count in [
            *((n, m, requests) for n, m in means.items()),
            ("inter_token_latency_seconds", 0.01, 19 * requests),
        ]:
            point = {
                **own,
                "count": str(count),
                "sum": mean * count,
                "explicitBounds": [mean],
                "bucketCounts": [count, 0],
            }
            metrics.append({"name": f"vllm:{name}", "histogram": {"aggregationTemporality": 2, "dataPoints": [point]}})
        return {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}

    lines = [json.dumps(collected(requests, at_s)) for requests, at_s in ((100, 1000), (250, 1030), (400, 1060))]
    (tmp_path / "collected.json").write_text("\n".join(lines))
    [row], [seen] = read_rows([tmp_path / "collected.json"], "l40s")
    assert (row.load, row.rate_req_s, row.isl, seen.seconds) == ("poisson", 5.0, 400.0, 60.0)
    assert row.measured == pytest.approx({"tpot_mean_ms": 10.0, "ttft_mean_ms": 50.0})
    (tmp_path / "collected.json").write_text(lines[0].replace('Temporality": 2', 'Temporality": 1'))
    with pytest.raises(BenchdataError, match="is not a running total"):
        read_rows([tmp_path / "collected.json"], "l40s")
    (tmp_path / "collected.json").write_text(
        lines[0].replace('"histogram"', '"exponentialHistogram"').replace('"sum"', '"scale": -9999, "sum"')
    )
    with pytest.raises(BenchdataError, match="is not in OTLP's form"):
        read_rows([tmp_path / "collected.json"], "l40s")


def test_a_page_of_two_servers_is_two_rows_and_one_traffic(tmp_path: Path) -> None:
    def both(first: int, second: int) -> str:
        return "".join(page(n, label=f'{LABEL},instance="10.0.0.{k}:8000"') for k, n in enumerate((first, second), 1))

    pages = written(tmp_path, a=both(100, 50), b=both(400, 650))
    rows, seen = read_rows(pages, "l40s", [], [60.0])
    assert [(row.id, row.rate_req_s) for row in rows] == [("b 10.0.0.1:8000", 5.0), ("b 10.0.0.2:8000", 10.0)]
    [(file, whole)] = traffic_files(tmp_path / "t.yaml", seen).items()
    assert (file.name, whole.rate_rps, whole.prompt_tokens) == ("t.yaml", pytest.approx(15.0), 400.0)


@pytest.mark.parametrize("queue", [0, 5])
def test_a_server_that_comes_later_was_there_as_long_as_its_pages(tmp_path: Path, queue: int) -> None:
    """A server that starts later is counted for its own pages only; times are used only if all pages have one."""
    label = LABEL + ',pod="b"'
    texts = {str(n): page(10 + 20 * n, label=LABEL + ',pod="a"') for n in range(7)}
    texts |= {str(n): texts[str(n)] + page(10 * n, label=label, waiting=n and queue) for n in range(3, 7)}
    texts["0"] += "vllm:num_requests_running 2 1000\n"
    pages = written(tmp_path, **texts)
    rows, seen = read_rows(pages, "l40s", (), [60.0])
    assert [one.rate_rps for one in seen] == [pytest.approx(2.0), pytest.approx(1.0)]
    assert rows[1].rate_req_s == pytest.approx(1.0)
    assert rows[1].counted is None if not queue else rows[1].counted.end_s - rows[1].counted.begin_s == 30.0


def test_each_folder_is_a_recording(tmp_path: Path) -> None:
    for name, to in (("low", 400), ("high", 700)):
        (tmp_path / name).mkdir()
        written(tmp_path / name, a=page(100), b=page(to))
    folders = [tmp_path / "low", tmp_path / "high"]
    rows, seen = read_rows(folders, "l40s", [], [60.0])
    assert [(row.id, row.rate_req_s) for row in rows] == [("low", 5.0), ("high", 10.0)]
    assert [row.rate_req_s for row in read_rows(folders, "l40s", [], [60.0, 30.0])[0]] == [5.0, 20.0]
    assert [file.name for file in traffic_files(tmp_path / "t.yaml", seen)] == ["t-low.yaml", "t-high.yaml"]


def test_runs_whose_files_have_one_name_keep_traffic_of_their_own(tmp_path: Path) -> None:
    for folder, answered in (("c1", 20), ("c8", 400)):
        (tmp_path / folder / "pages").mkdir(parents=True)
        written(tmp_path / folder / "pages", a=page(0), b=page(answered))
        (tmp_path / folder / "run.json").write_text(json.dumps(client_result(completed=answered, num_prompts=answered)))
    for name in ("run.json", "pages"):
        paths = [tmp_path / "c1" / name, tmp_path / "c8" / name]
        rows, seen = read_rows(paths, "l40s", [], [60.0] if name == "pages" else [])
        told = {file.name: one.requests for file, one in traffic_files(tmp_path / "w.yaml", seen).items()}
        stem = name.partition(".")[0]
        assert told == {f"w-c1-{stem}.yaml": 20, f"w-c8-{stem}.yaml": 400}
        assert {row.id for row in rows} == {f"c1-{stem}", f"c8-{stem}"}


def test_ranks_that_work_on_the_same_requests_count_once(tmp_path: Path) -> None:
    def ranks(requests: int) -> str:
        own = page(requests, "sglang")
        gauges = [line for line in own.splitlines() if "num_running" in line or "num_queue" in line]
        return own + "\n".join(line.replace("{", f'{{tp_rank="{rank}",') for line in gauges for rank in (0, 1)) + "\n"

    _, [seen] = read_rows(written(tmp_path, a=ranks(10), b=ranks(40), c=ranks(70)), "l40s", [], [60.0])
    assert seen.in_flight == 2.0


def test_prompts_out_of_another_cache_are_cached_too(tmp_path: Path) -> None:
    """vLLM counts what a connector fetched apart from hits in its own cache, which are a quarter here."""

    def fetched(requests: int) -> str:
        return page(requests) + (
            f"vllm:prompt_tokens_cached_total{{{LABEL}}} {300 * requests}\n"
            f"vllm:prompt_tokens_total{{{LABEL}}} {400 * requests}\n"
        )

    [row], _ = read_rows(written(tmp_path, a=fetched(100), b=fetched(400)), "l40s", [], [60.0])
    assert row.cached_share == 0.75


def test_ttft_is_of_streamed_answers_where_these_are_labelled(tmp_path: Path) -> None:
    def mixed(requests: int) -> str:
        late = histogram("sglang:time_to_first_token_seconds", {"0.1": 0, "+Inf": requests}, 0.2 * requests)
        return page(requests, "sglang") + late.replace("{", '{is_streaming="false",')

    [row], [seen] = read_rows(written(tmp_path, a=mixed(100), b=mixed(400)), "l40s", [], [60.0])
    assert (row.measured["ttft_mean_ms"], seen.rate_rps) == (pytest.approx(50.0), 10.0)


def client_result(**more: Any) -> dict[str, Any]:
    return {
        "model_id": "meta-llama/Llama-3.1-8B", "backend": "sglang", "completed": 40, "num_prompts": 40,
        "duration": 20.0, "total_input_tokens": 4000, "total_output_tokens": 800, "request_rate": 4.0,
        "burstiness": 0.25, "max_concurrency": 8, "mean_tpot_ms": 20.0, **more,
    }  # fmt: skip


def test_a_result_of_a_client_takes_what_it_does_not_say(tmp_path: Path) -> None:
    result = client_result()
    (tmp_path / "run.json").write_text(json.dumps(result))
    [row], [seen] = read_rows([tmp_path / "run.json"], "l40s", ["tp=2"])
    assert (row.gpu, row.tp, row.n_gpus, row.engine) == ("l40s", 2, 2, "SGLang")
    assert (row.load, row.concurrency, row.rate_req_s, row.burstiness) == ("closed_loop", 8, 4.0, 0.25)
    assert seen.rate_rps == 2.0


@pytest.mark.parametrize(
    ("told", "drafts"),
    [
        ({"accept_length": 2.5}, "drafts"),
        ({"spec_decode_acceptance_length": 3}, "drafts"),
        ({"accept_length": 2.5, "spec_decode": "EAGLE"}, "EAGLE"),
        ({"accept_length": None}, ""),
        ({"accept_length": 1.0}, ""),
    ],
)
def test_drafts_are_read_from_a_clients_result(tmp_path: Path, told: dict[str, Any], drafts: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(client_result(**told)))
    [row], _ = read_rows([tmp_path / "run.json"], "l40s")
    assert row.spec_decode == drafts


def test_runs_without_a_load_are_all_reported_at_once(tmp_path: Path) -> None:
    aiperf = genai_perf_run(
        request_count={"avg": 40.0}, error_request_count={"avg": 5.0}, input_config={"models": {"items": []}}
    )
    texts = {
        "cut": '{"completed": 4', "failed": client_result(num_prompts=45), "none": client_result(completed=0),
        "instant": client_result(duration=0), "aiperf": aiperf,
    }  # fmt: skip
    paths = [tmp_path / f"{name}.json" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text if isinstance(text, str) else json.dumps(text))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BenchdataError) as told:
        read_rows([tmp_path / "empty", *paths, paths[1]], "l40s")
    said = {Path(place).name: text for place, _, text in told.value.problems if "twice" not in text}
    assert said == {
        "empty": "is an empty folder",
        "cut.json": "is not JSON: expecting ',' delimiter",
        "failed.json": "5 requests failed, 40 were answered",
        "none.json": "no request was answered",
        "instant.json": "duration must be a time above 0 s, not 0",
        "aiperf.json": "5 requests failed, 40 were answered",
    }
    assert "failed.json: is named twice; a run counts once" in str(told.value)


def guidellm_report(strategy: dict[str, Any]) -> dict[str, Any]:
    def metric(mean: float, **more: float) -> dict[str, Any]:
        return {"successful": {"mean": mean, **more}}

    metrics = {
        "request_totals": {"successful": 120, "errored": 0, "incomplete": 0, "total": 120},
        "requests_per_second": metric(2.0), "request_concurrency": metric(3.8), "request_latency": metric(1.9),
        "prompt_token_count": metric(512, std_dev=0.0), "output_token_count": metric(128, std_dev=64.0),
        "time_to_first_token_ms": metric(80.0, median=70.0), "inter_token_latency_ms": metric(14.0),
        "output_tokens_per_second": metric(256.0),
    }  # fmt: skip
    config = {"strategy": strategy, "backend": {"model": "meta-llama/Llama-3.1-8B"}}
    return {"benchmarks": [{"config": config, "metrics": metrics}]}


TRACED = "its requests arrived at the times of a trace, which is not simulated"
STRATEGY = {"type_": "poisson", "rate": 2.0, "max_concurrency": 12}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (client_result(request_rate="trace", max_concurrency=None), TRACED),
        (client_result(request_rate="inf", max_concurrency=None, start_times=[100.0, 112.0]), TRACED),
        ({"phases": [{"type": "fixed_schedule"}]}, TRACED),
        ({"input": {"fixed_schedule": True}}, TRACED),
        ({"phases": [{"rate": 4.0, "rate_ramp": 30}]}, "the rate changed during the run, which is not simulated"),
        ({"phases": [{"concurrency": 4, "kind": "warmup"}, {"concurrency": 8}, {"concurrency": 16}]},
         "combines 2 phases of different loads; run each phase separately"),
        (guidellm_report({"type_": "trace"}), f"benchmark 1: {TRACED}"),
    ],
)  # fmt: skip
def test_unknown_loads_are_refused(tmp_path: Path, run: dict[str, Any], said: str) -> None:
    known = {"completed", "benchmarks"} & run.keys()
    whole = run if known else genai_perf_run(request_count={"avg": 40.0}, input_config=run)
    (tmp_path / "run.json").write_text(json.dumps(whole))
    with pytest.raises(BenchdataError) as told:
        read_rows([tmp_path / "run.json"], "l40s", ["model=llama3.1-8b"])
    assert [text for _, _, text in told.value.problems] == [said]


def test_gaps_drafts_and_cached_prompts_of_aiperf(tmp_path: Path) -> None:
    run = genai_perf_run(
        request_count={"avg": 40.0},
        spec_decode_acceptance_length={"unit": "ratio", "avg": 2.2},
        overall_usage_prompt_cache_read_pct={"unit": "%", "avg": 25.0},
        input_config={"phases": [{"type": "gamma", "rate": 3.0, "smoothness": 0.5}]},
    )
    (tmp_path / "run.json").write_text(json.dumps(run))
    [row], _ = read_rows([tmp_path / "run.json"], "l40s", ["model=llama3.1-8b"])
    assert (row.load, row.rate_req_s, row.burstiness, row.cached_share) == ("poisson", 3.0, 0.5, 0.25)
    assert row.spec_decode == "drafts"


def test_a_rate_of_guidellm_with_a_limit_is_a_closed_loop_under_the_one_that_binds(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(guidellm_report(STRATEGY)))
    [row], _ = read_rows([tmp_path / "run.json"], "l40s")
    assert (row.load, row.concurrency, row.rate_req_s) == ("closed_loop", 12, 2.0)


def test_the_parts_of_a_gauge_by_priority_do_not_count_again(tmp_path: Path) -> None:
    def prioritised(requests: int) -> str:
        own = page(requests, "sglang").replace('model_name="', 'priority="",model_name="')
        gauges = [line for line in own.splitlines() if "num_running" in line]
        return own + "\n".join(line.replace('priority=""', 'priority="1"') for line in gauges) + "\n"

    _, [seen] = read_rows(written(tmp_path, a=prioritised(10), b=prioritised(40), c=prioritised(70)), "l40s", [], [60])
    assert seen.in_flight == 2.0


def test_mistakes_in_options_and_files_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(client_result(model_id=None)))
    (tmp_path / "cut.json").write_text('{"completed": 4')
    with pytest.raises(BenchdataError) as told:
        read_rows([tmp_path / "run.json", tmp_path / "cut.json", tmp_path / "cut.json"], "l40s", ["modl=llama3.1-8b"])
    assert [text for _, _, text in told.value.problems] == [
        "there is no such column; did you mean model?",
        "is named twice; a run counts once",
        "is not JSON: expecting ',' delimiter",
    ]


def test_without_a_histogram_of_lengths_means_come_from_counters(tmp_path: Path) -> None:
    def plain(requests: int) -> str:
        kept = [one for one in page(requests, "sglang").splitlines() if "_histogram" not in one]
        more = histogram("sglang:e2e_request_latency_seconds", {"+Inf": requests}, requests)
        return "\n".join(kept) + "\n" + more + f"sglang:generation_tokens_total{{{LABEL}}} {20 * requests}\n"

    [row], [seen] = read_rows(written(tmp_path, a=plain(10), b=plain(40)), "l40s", [], [60.0])
    assert (row.isl, row.osl, row.prompt_cv) == (400.0, 20.0, None)
    assert "no histogram of lengths" in seen.remarks[0]


def span(begin_s: float, prompt: int, output: int, ttft_s: float, e2e_s: float) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gen_ai.usage.prompt_tokens": {"intValue": str(prompt)},
        "gen_ai.usage.completion_tokens": {"intValue": str(output)},
        "gen_ai.latency.time_to_first_token": {"doubleValue": ttft_s},
        "gen_ai.response.model": {"stringValue": "meta-llama/Llama-3.1-8B"},
    }
    attributes = [{"key": key, "value": value} for key, value in told.items()]
    times = {"startTimeUnixNano": str(int(begin_s * 1e9)), "endTimeUnixNano": str(int((begin_s + e2e_s) * 1e9))}
    return {"name": "llm_request", **times, "attributes": attributes}


def test_spans_are_requests(tmp_path: Path) -> None:
    spans = [span(10.0, 100, 11, 0.1, 1.1), span(12.0, 300, 11, 0.3, 1.3), {"name": "GET /health"}]
    (tmp_path / "traces.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    [row], [seen] = read_rows([tmp_path / "traces.json"], "l40s", [])
    assert (seen.rate_rps, seen.prompt_tokens, seen.prompt_cv) == pytest.approx((0.5, 200.0, 0.5))
    assert row.measured == pytest.approx({"ttft_mean_ms": 200.0, "tpot_mean_ms": 100.0, "e2e_mean_ms": 1200.0})


@pytest.mark.parametrize(("service", "engine"), [("sglang", "SGLang"), ("chat", "vLLM"), (None, "vLLM")])
def test_spans_of_sglang_are_known_by_its_service(tmp_path: Path, service: str | None, engine: str) -> None:
    spans = [span(10.0, 100, 11, 0.1, 1.1), span(12.0, 300, 11, 0.3, 1.3)]
    name = [{"key": "service.name", "value": {"stringValue": service}}] if service else []
    told = {"resourceSpans": [{"resource": {"attributes": name}, "scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "traces.json").write_text(json.dumps(told))
    [row], _ = read_rows([tmp_path / "traces.json"], "l40s", [])
    assert row.engine == engine


def test_a_result_of_aiperf(tmp_path: Path) -> None:
    run = {
        "request_throughput": {"unit": "requests/sec", "avg": 2.0}, "request_count": {"unit": "requests", "avg": 96.0},
        "request_latency": {"unit": "ms", "avg": 6000.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1000.0},
        "time_to_first_token": {"unit": "ms", "avg": 230.0, "p50": 177.0},
        "inter_token_latency": {"unit": "ms", "avg": 11.5, "p50": 12.0},
        "input_sequence_length": {"unit": "tokens", "avg": 4000.0, "std": 2000.0},
        "output_sequence_length": {"unit": "tokens", "avg": 500.0, "std": 0.0},
        "input_config": {
            "models": {"items": [{"name": "llama3.1-8b"}]},
            "phases": [{"type": "concurrency", "exclude_from_results": True, "concurrency": 4}, {"concurrency": 16}],
        },
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    [row], [seen] = read_rows([tmp_path / "run.json"], "l40s")
    assert (row.model, row.load, row.concurrency, row.num_requests) == ("llama3.1-8b", "closed_loop", 16, 96)
    assert (row.isl, row.prompt_cv, row.output_cv, seen.seconds) == (4000.0, 0.5, None, 48.0)
    assert (row.measured["tpot_mean_ms"], row.measured["ttft_p50_ms"], row.measured["req_s"]) == (11.5, 177.0, 2.0)


def genai_perf_run(**more: Any) -> dict[str, Any]:
    return {
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "request_latency": {"unit": "ms", "avg": 6000.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1000.0},
        "time_to_first_token": {"unit": "ms", "avg": 230.0, "p50": 177.0},
        "inter_token_latency": {"unit": "ms", "avg": 11.5, "p50": 12.0},
        "input_sequence_length": {"unit": "tokens", "avg": 4000.0, "std": 0.0},
        "output_sequence_length": {"unit": "tokens", "avg": 500.0, "std": 0.0},
        **more,
    }


OPTIONS = {"model": ["llama3.1-8b"], "service_kind": "openai", "measurement_interval": 30000, "request_count": 0}


@pytest.mark.parametrize(
    ("run", "load"),
    [
        (
            genai_perf_run(input_config=OPTIONS | {"concurrency": 12, "request_rate": None}),
            ("closed_loop", 12, None, 60),
        ),
        (
            genai_perf_run(input_config=OPTIONS | {"concurrency": None, "request_rate": 2.5, "request_count": 80}),
            ("constant", None, 2.5, 80),
        ),
        (
            genai_perf_run(
                request_count={"unit": "count", "avg": 40.0},
                input_config={"model_names": ["llama3.1-8b"], "perf_analyzer": {"stimulus": {"request_rate": 2}}},
            ),
            ("constant", None, 2.0, 40),
        ),
        (
            {
                "records": genai_perf_run(request_count={"unit": "requests", "avg": 40.0}),
                "input_config": {"endpoint": {"model_names": ["llama3.1-8b"]}, "loadgen": {"request_rate": 2.0}},
            },
            ("poisson", None, 2.0, 40),
        ),
    ],
    ids=["flat options", "flat options with a rate", "stimulus", "records"],
)
def test_results_of_genai_perf_and_of_the_first_aiperf(
    tmp_path: Path, run: dict[str, Any], load: tuple[Any, ...]
) -> None:
    (tmp_path / "run.json").write_text(json.dumps(run))
    [row], _ = read_rows([tmp_path / "run.json"], "l40s")
    assert (row.model, row.isl, row.measured["ttft_p50_ms"]) == ("llama3.1-8b", 4000.0, 177.0)
    assert (row.load, row.concurrency, row.rate_req_s, row.num_requests) == load


def test_a_report_of_guidellm_has_a_row_for_each_strategy(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(guidellm_report({"type_": "constant", "rate": 2.0})))
    [row], [seen] = read_rows([tmp_path / "report.json"], "l40s", [])
    assert (row.load, row.rate_req_s, row.isl, row.output_cv) == ("constant", 2.0, 512.0, 0.5)
    assert row.measured["e2e_mean_ms"] == pytest.approx(1900.0)
    assert fragment(seen)["workload"]["lengths"]["prompt"] == {"distribution": "fixed", "value": 512}


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ({"a": "gpu,model\n"}, "a.prom: has none of the metrics that are read"),
        ({"a": page(400), "b": page(100)}, "b.prom: vllm:request_prompt_tokens_bucket falls from 200 to 50"),
        ({"a": "\n".join(one for one in page(9).splitlines() if "bucket" not in one)},
         "a.prom: vllm:time_to_first_token_seconds has no buckets"),
        ({"a": page(9) + page(9, label='model_name="other"')}, "a.prom: holds metrics of several models, meta-llama"),
        ({"a": page(9) + page(9, "sglang")}, "a.prom: holds metrics of vLLM and of SGLang"),
        ({"a": page(9).replace("} 900\n", "} NaN\n")}, "must be a finite number, not 'NaN'"),
        ({"a": page(100), "b": page(10), "c": page(300)}, "b.prom: vllm:request_prompt_tokens_bucket falls"),
        ({"a": page(9) + page(9, label=LABEL.replace('"0"', '"1"'))}, "counts 2 data-parallel ranks separately"),
        ({"a": page(9) + f"vllm:spec_decode_num_drafts_total{{{LABEL}}} 5\n"}, "a.prom: decodes speculatively"),
        ({"a": page(9).replace("_sum", "_sum_of")}, "are not of the same values"),
        ({"a": page(9).replace("} 2\n", "} -2\n"), "b": page(20)}, "num_requests_running must be at least 0, not -2"),
        ({"a": page(9), "b": page(9)}, "counts nothing between the scrapes: no request was answered"),
        ({"a": page(9).replace("} 900\n", "} 900 2000\n"), "b": page(10).replace("} 1000\n", "} 1000 1000\n")},
         "b.prom: is no later than"),
        ({"a": '{"some": "object"}'}, "a.prom: is none of the kinds of file that are read"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_file(tmp_path: Path, texts: dict[str, str], line: str) -> None:
    with pytest.raises(BenchdataError) as told:
        read_rows(written(tmp_path, **texts), "l40s", [], [60.0])
    assert line in str(told.value)
    assert "\n" not in str(told.value)
