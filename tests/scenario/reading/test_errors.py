"""Every mistake is one line with file, line and place, all of them at once.

Mistakes in the input: all at once, each blamed on the value, the file or the option that made it.
"""

import os
from pathlib import Path

import pytest
from small_scenario import REFEREE

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.workload import TraceError
from sim.workload.traces.csv_formats import CsvTrace
from sim.workload.traces.mooncake import MooncakeTrace

REAL = """\
name: real
model: qwen2-72b-instruct
quantization: gptq-int4
workload:
  arrivals: {process: poisson, rate_rps: 1.0}
  lengths:
    prompt: {distribution: fixed, value: 100}
    output: {distribution: fixed, value: 10}
horizon_s: 100
fleets:
  - name: a
    pools:
      - gpu: rtx-4090
        tensor_parallel_size: 4
        server: workstation-4x4090
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def complaints(folder: Path, catalog: Catalog, text: str, *sets: str, **others: str) -> list[str]:
    """The error lines of a scenario file s.yaml with *text*, without the folder."""
    (folder / "s.yaml").write_text(text)
    for name, content in others.items():
        (folder / name.replace("_", ".")).write_text(content)
    with pytest.raises(ScenarioErrors) as caught:
        load(folder / "s.yaml", sets, catalog=catalog)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def full(lines: list[str]) -> list[str]:
    """Error lines as the tables below abbreviate them: @ is the first pool."""
    return [f"s.yaml:{line}".replace("@", "fleets.0.pools.0") for line in lines]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("rate_rps: 1.0", "rate_rps: -1", ["3: workload.arrivals.rate_rps: must be above 0, not -1"]),
        ("rate_rps: 1.0", "rate_rps: .nan", ["3: workload.arrivals.rate_rps: must be a finite number, not nan"]),
        ("rate_rps: 1.0", "rate_rps: fast", ["3: workload.arrivals.rate_rps: a number is needed, not 'fast'"]),
        ("rate_rps: 1.0", "rate_rsp: 1.0", [
            "3: workload.arrivals.rate_rps: is missing",
            "3: workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?"]),
        ("rate_rps: 1", "rate_rps: 1, requests: 5", [
            "3: workload.arrivals.requests: unknown key; did you mean num_requests?"]),
        ("rate_rps: 1", "rate_rps: 1, num: 5", ["3: workload.arrivals.num: unknown key; did you mean num_requests?"]),
        ("workload:", "size: {gpuz: [l40s]}\nworkload:", [
            "2: size.gpuz: unknown key; did you mean gpus?",
            "2: size: costs or rents is needed: the cost of each fleet is compared"]),
        ("value: 10}\nhorizon_s: 100", "value: 10, mean: 3}\nhorizon_s: 100\nwarmup_s: 200", [
            "6: workload.lengths.output.mean: unknown key; known here: distribution, value",
            "8: warmup_s: must be below horizon_s (100), not 200"]),
        ("horizon_s: 100", "horizon_s: 100\nhorizon: -1", ["8: horizon: unknown key; did you mean horizon_s?"]),
        ("{distribution: fixed, value: 100}", "{distribution: uniform, min: 9, most: 5, max: 4}", [
            "5: workload.lengths.prompt.most: unknown key; known here: distribution, min, max",
            "5: workload.lengths.prompt: max (4) must not be below min (9)"]),
        ("process: poisson", "process: poison", [
            "3: workload.arrivals.process: unknown process 'poison'; did you mean poisson?"]),
        ("process: poisson, ", "", [
            "3: workload.arrivals: process is missing: one of poisson, gamma, constant, closed_loop, burst, profile"]),
        ("distribution: fixed, value: 100", "distribution: fixed, value: 0", [
            "5: workload.lengths.prompt.value: must be above 0, not 0"]),
        ("horizon_s: 100", "horizon_s: 100\nwarmup_s: 100", [
            "8: warmup_s: must be below horizon_s (100), not 100"]),
        ("horizon_s: 100\n", "", ["1: horizon_s: is missing: nothing else ends these arrivals"]),
        ("horizon_s: 100", "horizon_s: 12:30:00", ["7: horizon_s: a number is needed, not '12:30:00'"]),
        ("horizon_s: 100", "horizon_s: 100\nrequests: xlsx", [
            "8: requests: must be one of csv, parquet, none, not 'xlsx'"]),
        ("horizon_s: 100", """horizon_s: 100
finance: {method: annuity, discount_rate: 8, life_years: 3,
  loan: {share: 1, rate: 7, term_months: 9},
  lease: {term_months: 9, rate: 0.1},
  tax: {rate: 0.25, depreciation: {table: [0.5, 0.6]}}}""", [
            "8: finance.discount_rate: must be at most 1, not 8: 8 % is 0.08",
            "9: finance.loan.rate: must be at most 1, not 7: 7 % is 0.07",
            "10: finance.lease: loan and lease finance the same purchase: remove one; "
            "breakeven.financing compares them",
            "11: finance.tax.depreciation: table sums to 1.1: its fractions must sum to 1"]),
        ("horizon_s: 100", "horizon_s: 100\nslo: {ttft: 3}", ["8: slo.ttft: unknown key; did you mean ttft_s?"]),
        ("horizon_s: 100", "horizon_s: 100\nprice_paths: {gpu: {}}", [
            "8: price_paths.gpu: unknown key; did you mean hardware?"]),
        ("horizon_s: 100", "horizon_s: 100\nreplications: 1.5", [
            "8: replications: a whole number is needed, not 1.5"]),
        ("horizon_s: 100", "horizon_s: 100\nseed: true", ["8: seed: a number is needed, not true or false"]),
        ("name: referee", "name: 2024", ["1: name: text is needed, not 2024 (put it in quotes)"]),
        ("name: referee", "name: a/b", ["1: name: 'a/b' is not the name of a folder, which the results need"]),
        ("max_num_batched_tokens: 512", "max_num_batched_tokens: 8", [
            "12: @.batching: max_num_batched_tokens (8) must not be below max_num_seqs (16)"]),
        ("policy: vllm", "policy: vlm", [
            "12: @.batching.policy: unknown policy 'vlm'; did you mean vllm?"]),
        (", num_gpu_blocks: 1000", "", [
            "11: @.gpu: is missing: the KV cache follows from it; or give batching.num_gpu_blocks",
            "11: @.model: is missing: the KV cache follows from it; or give batching.num_gpu_blocks"]),
        ("model: affine, ", "", ["11: @.steptime: model is missing: one of affine, roofline, affine_batch, one_pass"]),
        ("    pools:", "    pool:", [
            "9: fleets.0.pools: is missing", "10: fleets.0.pool: unknown key; did you mean pools?"]),
        ("  - name: a", "  - name: a\n    routing: {policy: round}", [
            "10: fleets.0.routing.policy: unknown policy 'round'; did you mean round_robin?"]),
        ("fleets:", "fleets: []\nfleet:", [
            "8: fleets: must not be empty", "9: fleet: unknown key; did you mean fleets?"]),
        ("horizon_s: 100", "horizon_s: 100\nhorizon_s: 200", ["8: the key 'horizon_s' is given twice"]),
        ("rate_rps: 1.0", "rate_rps: 1e9", [
            "3: workload.arrivals: about 100,000,000,000 requests in one case; "
            "at most 20,000,000 (limits.requests raises it)"]),
        ("{distribution: fixed, value: 100}", "{distribution: empirical, table: azure-2023-covn}", [
            "5: workload.lengths.prompt.table: unknown length table 'azure-2023-covn'; "
            "did you mean azure-2023-conv/prompt or azure-2023-code/prompt?"]),
        ("  - name: a", "  - name: ''", ["9: fleets.0.name: must not be empty"]),
        ("horizon_s: 100", "horizon_s: 100\nsweep: []", ["8: sweep: must not be empty"]),
        ("horizon_s: 100", "horizon_s: [100", ["8: is not valid YAML: did not find expected ',' or ']'"]),
    ],
)  # fmt: skip
def test_one_mistake(tmp_path: Path, catalog: Catalog, old: str, new: str, lines: list[str]) -> None:
    assert REFEREE.count(old) >= 1
    assert complaints(tmp_path, catalog, REFEREE.replace(old, new, 1)) == full(lines)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("gpu: rtx-4090", "gpu: rtx4900", ["13: @.gpu: unknown gpu 'rtx4900'; did you mean rtx-4090"]),
        ("qwen2-72b-instruct", "qwen2-72b-instuct", [
            "2: model: unknown model 'qwen2-72b-instuct'; did you mean qwen2-72b-instruct"]),
        ("gptq-int4", "gptq-4", ["3: quantization: unknown quantization 'gptq-4'; did you mean gptq-int4"]),
        ("quantization:", "engine: vlm\nquantization:", ["3: engine: unknown engine 'vlm'; did you mean"]),
        ("workstation-4x4090", "workstation-4x4080", [
            "15: @.server: unknown server 'workstation-4x4080'; did you mean workstation-4x4090"]),
        ("server: ", "link: nvlink9\n        server: ", ["15: @.link: unknown link 'nvlink9'; did you mean"]),
        ("tensor_parallel_size: 4", "tensor_parallel_size: 3", [
            "14: @.tensor_parallel_size: 3 does not divide 64 attention heads of qwen2-72b-instruct"]),
        ("tensor_parallel_size: 4", "tensor_parallel_size: 64", [
            "14: @.tensor_parallel_size: 64 cuts", "14: @.tensor_parallel_size: 64 ranks do not fit the 4 slots"]),
        ("server: workstation-4x4090", "server: workstation-2x4090", [
            "14: @.tensor_parallel_size: 4 ranks do not fit the 2 slots of workstation-2x4090"]),
        ("server: workstation-4x4090", "server: workstation-4xa6000", [
            "15: @.server: workstation-4xa6000 is built for rtx-a6000, not for rtx-4090"]),
        ("server: workstation-4x4090", "max_model_len: 999999", [
            "15: @.max_model_len: 999999 tokens exceed 32768, the context length of qwen2-72b-instruct"]),
        ("server: workstation-4x4090", "batching: {max_num_seqs: 9999}", [
            "15: @.batching.max_num_seqs: max_num_batched_tokens (2048) must not be below max_num_seqs"]),
        ("horizon_s: 100", "horizon_s: 100\ncarbon: {grid: germny}", [
            "10: carbon.grid: unknown grid 'germny'; did you mean deu"]),
        ("server: workstation-4x4090", "power: {cap_w: 200}", [
            "15: @.power.cap_w: there are no measurements of the card under a cap below 230 W"]),
        ("model: qwen2-72b-instruct\n", "", ["12: @.model: is missing: the step time follows from it"]),
        ("  - name: a", "  - name: a\n    cost: {acquisition: buy, quotes: {rtx-4900: 1}}", [
            "11: fleets.0.finance: buying needs finance",
                "11: fleets.0.site: buying needs a site",
                "12: fleets.0.cost.quotes.rtx-4900: unknown gpu or server 'rtx-4900'; did you mean rtx-4090?"]),
        ("  - name: a", "  - name: a\n    cost: {acquisition: buy}", [
            "11: fleets.0.finance: buying needs finance", "11: fleets.0.site: buying needs a site"]),
        ("  - name: a", "  - name: a\n    cost: {acquisition: rent, price: rtx-4090/nobody}", [
            "12: fleets.0.cost.price: unknown offer 'rtx-4090/nobody'"]),
    ],
)  # fmt: skip
def test_one_mistake_against_the_catalogue(
    tmp_path: Path, catalog: Catalog, old: str, new: str, lines: list[str]
) -> None:
    assert REAL.count(old) >= 1
    found = complaints(tmp_path, catalog, REAL.replace(old, new, 1))
    assert [line[: len(start)] for line, start in zip(found, full(lines), strict=True)] == full(lines)


@pytest.mark.slow
def test_all_mistakes_at_once(tmp_path: Path, catalog: Catalog) -> None:
    text = REAL.replace("rate_rps: 1.0", "rate_rps: -1").replace("gpu: rtx-4090", "gpu: rtx4900")
    text = text.replace("horizon_s: 100", "horizont_s: 100\nseed: -1") + "  - {name: a, pools: [{gpu: l40s, tp: 3}]}\n"
    assert complaints(tmp_path, catalog, text) == [
        "s.yaml:5: workload.arrivals.rate_rps: must be above 0, not -1",
        "s.yaml:9: horizont_s: unknown key; did you mean horizon_s?",
        "s.yaml:10: seed: must be 0 or more, not -1",
        "s.yaml:14: fleets.0.pools.0.gpu: unknown gpu 'rtx4900'; did you mean rtx-4090?",
        "s.yaml:17: fleets.1.pools.0.tp: unknown key",
        "s.yaml:17: fleets.1.name: the name 'a' is given twice",
    ]


def test_one_mistake_does_not_hide_another_kind(tmp_path: Path, catalog: Catalog) -> None:
    text = REAL.replace("rate_rps: 1.0", "rate_rps: -1").replace("tensor_parallel_size: 4", "tensor_parallel_size: 3")
    found = complaints(tmp_path, catalog, text)
    assert [line.split(": ")[1] for line in found] == [
        "workload.arrivals.rate_rps",
        "fleets.0.pools.0.tensor_parallel_size",
    ]


@pytest.mark.parametrize(
    ("trace", "lines"),
    [
        (None, ["s.yaml:2: workload.trace.path: t.csv cannot be read: no such file or directory"]),
        ("", ["t.csv: "]),
        ("arrival_s,prompt_tokens,output_tokens\n", ["t.csv: "]),
        ("arrival_s,prompt_tokens,output_tokens\n1,10,5\n0.5,10,5\n", ["t.csv:3: "]),
        ("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,x,5\n2,10,-1\n", ["t.csv:3: ", "t.csv:4: "]),
        ("arrival_s,prompt_tokens,output_tokens\n0,10,5\nnan,5,5\n", ["t.csv:3: "]),
        ("arrivals_s,prompt_tokens,output_tokens\n0,10,5\n", ["t.csv:1: "]),
    ],
)
def test_traces(tmp_path: Path, catalog: Catalog, trace: str | None, lines: list[str]) -> None:
    start = REFEREE.index("workload:")
    text = "name: x\nworkload: {trace: {path: t.csv, format: csv}}\n" + REFEREE[REFEREE.index("horizon_s") :]
    assert start > 0
    found = complaints(tmp_path, catalog, text, **({} if trace is None else {"t_csv": trace}))
    assert [line[: len(begin)] for line, begin in zip(found, lines, strict=True)] == lines


@pytest.mark.parametrize(
    ("sweep", "lines"),
    [
        ("workload.arrivals.rate_rsp: [1]", [
            "s.yaml:14: sweep.workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?"]),
        ("workload.arivals.rate_rps: [1, 2]", [
            "s.yaml:14: sweep.workload.arivals.rate_rps: workload.arivals: unknown key; did you mean arrivals?"]),
        ("workload.arrivals.rate_rps: [1, -2]", [
            "s.yaml:14: sweep.workload.arrivals.rate_rps.1: must be above 0, not -2"]),
        ("workload.arrivals.rate_rps: 3", ["s.yaml:14: sweep.workload.arrivals.rate_rps: a list of values is needed"]),
        ("workload.arrivals.rate_rps: []", ["s.yaml:14: sweep.workload.arrivals.rate_rps: must not be empty"]),
        ("workload.arrivals.rate_rps: [1, 1]", [
            "s.yaml:14: sweep.workload.arrivals.rate_rps: the value 1 is given twice"]),
        ("fleets.b.pools.0.replicas: [1]", [
            "s.yaml:14: sweep.fleets.b.pools.0.replicas: fleets has no item named 'b'; known here: a"]),
        ("fleets.a.pools.3.replicas: [1]", [
            "s.yaml:14: sweep.fleets.a.pools.3.replicas: fleets.0.pools has no item 3, only 1 counted from 0"]),
        ("fleets.a.pools.0.batching.max_num_seqs: [8, 9999]", [
            "s.yaml:14: sweep.fleets.a.pools.0.batching.max_num_seqs.1: fleets.0.pools.0.batching: "
            "max_num_batched_tokens (512) must not be below max_num_seqs (9999)"]),
        ("warmup_s: [0, 1000]", ["s.yaml:14: sweep.warmup_s.1: must be below horizon_s (100), not 1000"]),
        ("model: [none-such]", ["s.yaml:14: sweep.model.0: unknown model 'none-such'"]),
        ("workload.arrivals.rate_rps.x: [1, 2]", [
            "s.yaml:14: sweep.workload.arrivals.rate_rps.x: workload.arrivals.rate_rps is 1.0: it has no keys"]),
        ("workload.arrivals.process: [burst, constant]", [
            "s.yaml:14: sweep.workload.arrivals.process.0: workload.arrivals.num_requests: is missing",
            "s.yaml:14: sweep.workload.arrivals.process.0: workload.arrivals.rate_rps: unknown key; "
            "known here: process, num_requests"]),
        ("replications: [1]", ["s.yaml:14: sweep.replications: replications cannot be swept"]),
    ],
)  # fmt: skip
def test_sweeps(tmp_path: Path, catalog: Catalog, sweep: str, lines: list[str]) -> None:
    assert complaints(tmp_path, catalog, f"{REFEREE}sweep:\n  {sweep}\n") == lines


def test_explicit_points(tmp_path: Path, catalog: Catalog) -> None:
    text = f"{REFEREE}sweep:\n  - {{workload.arrivals.rate_rps: 1}}\n  - {{workload.arrivals.rate_rps: 0}}\n  - 3\n"
    assert complaints(tmp_path, catalog, text) == [
        "s.yaml:15: sweep.1.workload.arrivals.rate_rps: must be above 0, not 0",
        "s.yaml:16: sweep.2: a mapping of dotted paths to values is needed",
    ]
    assert complaints(tmp_path, catalog, text.replace("  - 3\n", "")) == [
        "s.yaml:15: sweep.1.workload.arrivals.rate_rps: must be above 0, not 0"
    ]


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("workload.arrivals.rate_rps=-1", "--set workload.arrivals.rate_rps: must be above 0, not -1"),
        ("workload.arrivals={process: poisson, rate_rps: 0}",
         "--set workload.arrivals: workload.arrivals.rate_rps: must be above 0, not 0"),
        ("fleets.a.pools.0.replcas=2", "--set fleets.a.pools.0.replcas: unknown key; did you mean replicas?"),
        ("fleets.b.pools.0.replicas=2", "--set fleets.b.pools.0.replicas: fleets has no item named 'b'; known here: a"),
        ("horizon_s.x=2", "--set horizon_s.x: horizon_s is 100: it has no keys"),
        ("horizon_s", "--set horizon_s: path=value is needed"),
        ("horizon_s=[1", "--set horizon_s: is not valid YAML: did not find expected ',' or ']'"),
    ],
)  # fmt: skip
def test_values_set_on_the_command_line(tmp_path: Path, catalog: Catalog, option: str, line: str) -> None:
    assert complaints(tmp_path, catalog, REFEREE, option) == [line]


def test_mistakes_of_the_base_are_reported_in_the_base(tmp_path: Path, catalog: Catalog) -> None:
    base = REFEREE.replace("rate_rps: 1.0", "rate_rps: -1")
    assert complaints(tmp_path, catalog, "base: b.yaml\nhorizon: 3\n", b_yaml=base) == [
        "b.yaml:3: workload.arrivals.rate_rps: must be above 0, not -1",
        "s.yaml:2: horizon: unknown key; did you mean horizon_s?",
    ]


def test_a_base_that_is_not_there(tmp_path: Path, catalog: Catalog) -> None:
    assert complaints(tmp_path, catalog, "base: gone.yaml\n") == ["s.yaml:1: base: there is no file gone.yaml"]


@pytest.mark.parametrize(
    ("text", "line"), [("", "s.yaml: is empty"), ("- 1\n", "s.yaml:1: a mapping (key: value) is needed")]
)
def test_files_that_are_no_scenario(tmp_path: Path, catalog: Catalog, text: str, line: str) -> None:
    assert complaints(tmp_path, catalog, text) == [line]


def test_a_missing_file(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(ScenarioErrors, match=r"gone\.yaml: cannot be read: no such file or directory"):
        load(tmp_path / "gone.yaml", catalog=catalog)
    (tmp_path / "services.yaml").touch()
    for wrong, told in (("service.yaml", "services.yaml"), ("4x4090-vs-2xa10", "4x4090-vs-2xa100")):
        with pytest.raises(ScenarioErrors, match=f"no such file or directory; did you mean {told}\\?$"):
            load(tmp_path / wrong, catalog=catalog)


BASE = """\
name: a
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 4}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 50}}
horizon_s: 100
warmup_s: 10
fleets:
  - name: ada
    pools: [{gpu: rtx-4090, replicas: 2, server: workstation-2x4090}]
    cost: {acquisition: buy, quotes: {rtx-4090: 1900, workstation-2x4090: 2000}}
  - name: l40s
    pools: [{gpu: l40s}]
    cost: {acquisition: rent, quotes: {l40s: 0.9}}
site: {electricity_usd_per_kwh: 0.12, pue: 1.4}
finance: {method: annuity, discount_rate: 0.08, life_years: 4}
sweep: {workload.arrivals.rate_rps: [1, 2]}
"""


def told(path: Path, *sets: str) -> list[str]:
    """The errors, files by their names alone."""
    with pytest.raises(ScenarioErrors) as caught:
        load(path, sets, catalog=load_catalog())
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(BASE)
    return path


def test_each_axis_is_blamed_for_its_own_values(base: Path) -> None:
    path = base.with_name("b.yaml")
    path.write_text(
        'base: a.yaml\nsweep:\n  workload.arrivals.rate_rsp: [1]\n  horizon_s: [.nan]\n  warmup_s: ["x"]\n'
        "  fleets.ada.pools.0.replicas: [0]\n"
    )
    assert told(path) == [
        "b.yaml:3: sweep.workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?",
        "b.yaml:4: sweep.horizon_s.0: must be a finite number, not nan",
        "b.yaml:5: sweep.warmup_s.0: a number of seconds or auto is needed, not 'x'",
        "b.yaml:6: sweep.fleets.ada.pools.0.replicas.0: must be above 0, not 0",
    ]


def test_of_several_axes_the_one_that_makes_the_trouble_is_blamed(base: Path) -> None:
    base.write_text(BASE.replace("sweep: {", "sweep: {seed: [1, 2], horizon_s: [100, 5], "))
    (one,) = told(base)
    assert one == "a.yaml:17: sweep.horizon_s.1: warmup_s: must be below horizon_s (5), not 10"


@pytest.mark.parametrize("sweep", ["{horizon_s: [100, 200]}", "[{horizon_s: 100}, {horizon_s: 200, seed: 2}]"])
def test_an_option_that_replaces_the_values_of_an_axis_is_reported_once(base: Path, sweep: str) -> None:
    assert told(base, f"sweep={sweep}", "horizon_s=-1") == ["--set horizon_s: must be above 0, not -1"]


def test_a_limit_that_is_wrong_at_a_point_beside_an_unknown_key_has_no_consequences(base: Path) -> None:
    limits = "fleets.ada.pools.0.batching.max_num"
    error = f"--set {limits}_sequ: unknown key; did you mean max_num_seqs?"
    batching = "fleets.ada.pools.0.batching={policy: vllm, max_num_seqs: 8, num_gpu_blocks: 99}"
    sweep = f"sweep={{{limits}_batched_tokens: [2048, 4]}}"
    assert told(base, batching, f"{limits}_sequ=3", sweep) == [error]


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("sitee.pue=1.2", "--set sitee.pue: sitee: unknown key; did you mean site?"),
        ("fleets.ada.pool.0.replicas=2", "--set fleets.ada.pool.0.replicas: fleets.0.pool: unknown key"),
        ("site=null", "--set site: fleets.0.site: buying needs a site"),
        ("model=null", "--set model: fleets.0.pools.0.model: is missing"),
        ('replications="2"', "--set replications: a whole number is needed, not '2'"),
        ("workload.arrivals.rate_rsp=2", "--set workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?"),
    ],
)
def test_issues_caused_by_an_option_name_the_option(base: Path, option: str, error: str) -> None:
    assert told(base, option)[0].startswith(error)


def test_no_mistake_hides_another(base: Path) -> None:
    text = BASE.replace("name: a\n", 'name: "a\\x07"\nmodle: llama3.1-8b\n').replace("name: l40s", "name: ada")
    text = text.replace("horizon_s: 100", "horizon_s: -1\nhorizon_s: 100")
    base.write_text(text.replace("sweep: {", "sweep: {workload.arrivals.rate_rsp: [1], fleets.adda.name: [b], "))
    assert [line.partition(": ")[2] for line in told(base, "fleets.zz.name=b", "horizon=[")] == [
        "the text 'a\\x07' holds the control character '\\x07'",
        "modle: unknown key; did you mean model?",
        "horizon_s: must be above 0, not -1",
        "the key 'horizon_s' is given twice",
        "fleets.1.name: the name 'ada' is given twice",
        "sweep.fleets.adda.name: fleets has no item named 'adda'; did you mean ada?",
        "sweep.workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?",
        "fleets has no item named 'zz'; known here: ada",
        "is not valid YAML: did not find expected node content",
    ]


def test_an_unknown_kind_hides_no_mistake_in_its_mapping(tmp_path: Path, catalog: Catalog) -> None:
    text = REAL.replace("poisson, rate_rps: 1.0", "poison, rate_rps: -1, rat: 2").replace("fixed, value: 100", "fixd")
    assert complaints(tmp_path, catalog, text + "starts_at: yesterday\n") == [
        "s.yaml:5: workload.arrivals.process: unknown process 'poison'; did you mean poisson?",
        "s.yaml:5: workload.arrivals.rate_rps: must be above 0, not -1",
        "s.yaml:5: workload.arrivals.rat: unknown key; did you mean rate_rps?",
        "s.yaml:7: workload.lengths.prompt.distribution: unknown distribution 'fixd'; did you mean fixed?",
        "s.yaml:7: workload.lengths.prompt.value: is missing",
        "s.yaml:16: starts_at: a date and a time are needed, such as 2026-07-01T08:00:00, not 'yesterday'",
    ]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("ada ", "fleets.1.name: a name begins and ends without blanks: 'ada '"),
        ("ad\u202ea", "fleets.1.name: a name holds no invisible characters: U+202E in 'ad\\u202ea'"),
        ("ad\u200ba", "fleets.1.name: a name holds no invisible characters: U+200B in 'ad\\u200ba'"),
        ("ａda", "fleets.1.name: the name 'ａda' is given twice"),  # a full-width letter
    ],
)
def test_names_that_look_alike_are_no_names(base: Path, name: str, error: str) -> None:
    base.write_text(BASE.replace("name: l40s", f'name: "{name}"'))
    assert told(base) == [f"a.yaml:12: {error}"]


def test_a_pipe_is_not_waited_for(base: Path) -> None:
    pipe = base.with_name("pipe")
    os.mkfifo(pipe)
    assert told(pipe) == ["pipe: cannot be read: it is not a regular file"]
    for trace in (CsvTrace(path=str(pipe), format="csv"), MooncakeTrace(path=str(pipe), format="mooncake")):
        with pytest.raises(TraceError, match="it is not a regular file"):
            trace.read()


def test_a_wrong_key_of_a_mapping_with_fixed_keys_lists_them(tmp_path: Path, catalog: Catalog) -> None:
    finance = "finance: {inflation: {enrgy: 0.03}, method: annuity, discount_rate: 0, life_years: 3}"
    found = complaints(tmp_path, catalog, REAL.replace("horizon_s: 100", f"horizon_s: 100\n{finance}"))
    assert found[0].startswith("s.yaml:10: finance.inflation.enrgy: must be one of energy, cooling, demand, ")
    assert found[0].endswith(", api, not 'enrgy'; did you mean energy?")
