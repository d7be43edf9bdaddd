"""Reading scenarios: layers, command-line values, sweeps, cases."""

import json
from pathlib import Path
from typing import Any

import pytest
from characters import any_of
from hypothesis import given
from hypothesis import strategies as st

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.layers import place_of, read_layers, value_at
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, at_point, axes, axis_labels, cases, points
from sim.yamlio import dump, parse

TEXT = """\
# What is it good for?
#
# More about it.
workload:
  arrivals: {process: poisson, rate_rps: 1.0}
  lengths:
    prompt: {distribution: fixed, value: 100}
    output: {distribution: fixed, value: 10}
horizon_s: 100
replications: 2
fleets:
  - name: 2x A v1.5
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
  - name: b
    pools:
      - steptime: {model: affine, base_s: 0.02, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def loaded(folder: Path, catalog: Catalog, text: str = TEXT, *sets: str, **options: Any) -> Scenario:
    (folder / "s.yaml").write_text(text)
    return load(folder / "s.yaml", sets, catalog=catalog, **options)


def test_defaults_are_filled_in(tmp_path: Path, catalog: Catalog) -> None:
    scenario = loaded(tmp_path, catalog)
    assert (scenario.name, scenario.question) == ("s", "What is it good for?")
    assert (scenario.warmup_s, scenario.seed, scenario.slo.attainment) == (0.0, 0, 0.95)


def test_values_set_on_the_command_line_win(tmp_path: Path, catalog: Catalog) -> None:
    sets = [
        "horizon_s=1e3",
        "fleets.2x A v1.5.pools.0.replicas=3",
        "fleets.1.name=c",
        "slo.ttft_s=0.5",
        "requests=none",
    ]
    scenario = loaded(tmp_path, catalog, TEXT, *sets, seed=9, replications=4)
    assert scenario.horizon_s == 1000
    assert scenario.fleets[0].pools[0].replicas == 3
    assert scenario.fleets[1].name == "c"
    assert (scenario.slo.ttft_s, scenario.requests, scenario.seed, scenario.replications) == (0.5, "none", 9, 4)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(any_of("abc .é#:"))
)


@pytest.mark.slow
@given(
    value=scalars | st.lists(scalars, max_size=3),
    index=st.integers(0, 1),
    key=st.sampled_from(["power", "new", "name"]),
)
def test_a_value_set_is_the_value_read(
    tmp_path_factory: pytest.TempPathFactory, value: Any, index: int, key: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "layers.yaml"
    path.write_text(TEXT)
    text = dump(value).removesuffix("...\n")
    layers = read_layers(path, [(f"--set fleets.{index}.{key}", text)])
    assert layers.data["fleets"][index].get(key) == value == parse(text)
    assert value_at(layers.data, ("horizon_s",)) == 100


def test_a_set_value_shrinks_its_sweep_axis(tmp_path: Path, catalog: Catalog) -> None:
    swept = f"{TEXT}sweep: {{workload.arrivals.rate_rps: [1, 2], seed: [1, 2]}}\n"
    scenario = loaded(tmp_path, catalog, swept, "workload.arrivals.rate_rps=3")
    assert points(scenario.sweep) == [
        {"workload.arrivals.rate_rps": 3, "seed": 1},
        {"workload.arrivals.rate_rps": 3, "seed": 2},
    ]
    listed = f"{TEXT}sweep: [{{workload.arrivals.rate_rps: 1}}, {{workload.arrivals.rate_rps: 2}}]\n"
    assert points(loaded(tmp_path, catalog, listed, "workload.arrivals.rate_rps=3").sweep) == [
        {"workload.arrivals.rate_rps": 3}
    ]
    assert points(loaded(tmp_path, catalog, swept, "sweep=null").sweep) == [{}]
    assert points(loaded(tmp_path, catalog, swept, "sweep.seed=[5]").sweep)[0] == {
        "workload.arrivals.rate_rps": 1,
        "seed": 5,
    }


def test_a_swept_key_may_be_missing_from_the_scenario(tmp_path: Path, catalog: Catalog) -> None:
    text = TEXT.replace(", rate_rps: 1.0", "") + "sweep: {workload.arrivals.rate_rps: [4, 2]}\n"
    scenario = loaded(tmp_path, catalog, text)
    rates = {
        case.axes["rate_rps"]: at_point(scenario, case.overrides).workload.mean_rate_rps() for case in cases(scenario)
    }
    assert rates == {4: 4, 2: 2}


def test_the_base_is_merged(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text(f"name: base\nslo: {{ttft_s: 1, tpot_s: 2}}\nseed: 3\n{TEXT}")
    over = """\
base: sub/base.yaml
slo: {tpot_s: 3}
seed: null
workload: {arrivals: {process: closed_loop, concurrency: 4}, lengths: {prompt: {value: 7}}}
fleets: [{name: only, pools: [{steptime: {model: affine, base_s: 1, per_token_s: 0, per_context_token_s: 0},
  batching: {max_num_seqs: 1, max_num_batched_tokens: 8, num_gpu_blocks: 9}}]}]
"""
    scenario = loaded(tmp_path, catalog, over)
    assert scenario.name == "s"
    assert (scenario.slo.ttft_s, scenario.slo.tpot_s, scenario.seed) == (1, 3, 0)
    assert scenario.workload.closed_loop() is not None
    assert as_data(scenario)["workload"]["lengths"]["prompt"] == {"distribution": "fixed", "value": 7}
    assert [fleet.name for fleet in scenario.fleets] == ["only"]


def test_a_trace_in_the_file_replaces_arrivals_in_the_base(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "base.yaml").write_text(TEXT)
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n")
    scenario = loaded(tmp_path, catalog, "base: base.yaml\nworkload: {trace: {path: t.csv, format: csv}}\n")
    assert scenario.workload.trace is not None
    assert scenario.workload.trace.path == str(tmp_path / "t.csv")


def test_paths_start_where_they_are_written(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("sub", "cwd"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n")
    text = TEXT[TEXT.index("replications") :] + "workload: {trace: {path: sub.csv, format: csv}}\n"
    (tmp_path / "sub" / "base.yaml").write_text(text)
    over = "base: sub/base.yaml\nsweep: {workload.trace.path: [sub/sub.csv, cwd/cwd.csv]}\n"
    monkeypatch.chdir(tmp_path / "cwd")
    scenario = loaded(tmp_path, catalog, over)
    assert [p["workload.trace.path"] for p in points(scenario.sweep)] == [
        str(tmp_path / "sub" / "sub.csv"),
        str(tmp_path / "cwd" / "cwd.csv"),
    ]
    for given_path, meant in (("cwd.csv", "cwd/cwd.csv"), ("sub/sub.csv", "sub/sub.csv")):
        scenario = loaded(tmp_path, catalog, "base: sub/base.yaml\n", f"workload.trace.path={given_path}")
        assert scenario.workload.trace is not None
        assert scenario.workload.trace.path == str(tmp_path / meant)


@pytest.mark.parametrize("named", ["own/config.json", "own"])
def test_a_model_may_be_a_config(tmp_path: Path, catalog: Catalog, named: str) -> None:
    (tmp_path / "own").mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    scenario = loaded(tmp_path, catalog, f"model: {named}\n{TEXT}sweep: {{model: [{named}, llama3.1-8b]}}\n")
    assert scenario.model == str(tmp_path / named)
    assert [point["model"] for point in points(scenario.sweep)] == [str(tmp_path / named), "llama3.1-8b"]
    assert catalog.model(scenario.model).layers == 32


def test_cases_are_fleets_times_points_times_replications(tmp_path: Path, catalog: Catalog) -> None:
    text = f"{TEXT}sweep: {{workload.arrivals.rate_rps: [1, 2], fleets.b.pools.0.replicas: [1, 2, 3]}}\n"
    scenario = loaded(tmp_path, catalog, text)
    found = cases(scenario)
    assert axes(scenario) == ["rate_rps", "replicas"]
    assert len(found) == 2 * 6 * 2
    assert [case.axes for case in found[:12:2]] == [{"rate_rps": r, "replicas": n} for r in (1, 2) for n in (1, 2, 3)]
    assert {case.fleet for case in found[:12]} == {"2x A v1.5"}
    last = at_point(scenario, found[-1].overrides)
    assert [fleet.pools[0].replicas for fleet in last.fleets] == [1, 3]
    assert last.sweep is None


def test_deterministic_cases_run_once(tmp_path: Path, catalog: Catalog) -> None:
    text = TEXT.replace("process: poisson", "process: constant").replace(
        "name: b\n", "name: b\n    routing: {policy: random}\n"
    )
    found = cases(loaded(tmp_path, catalog, text, "fleets.b.pools.0.replicas=2"))
    assert [(case.fleet, case.replication) for case in found] == [("2x A v1.5", 0), ("b", 0), ("b", 1)]


def test_explicit_points_show_every_axis(tmp_path: Path, catalog: Catalog) -> None:
    text = f"{TEXT}sweep: [{{workload.arrivals.rate_rps: 2}}, {{horizon_s: 50, slo: {{ttft_s: 1}}}}]\n"
    found = [case.axes for case in cases(loaded(tmp_path, catalog, text)) if case.replication == 0][:2]
    assert found == [
        {"rate_rps": 2, "horizon_s": 100, "slo": None},
        {"rate_rps": 1.0, "horizon_s": 50, "slo": '{"ttft_s": 1}'},
    ]


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["workload.arrivals.rate_rps"], ["rate_rps"]),
        (["fleets.a.pools.0.replicas", "fleets.b.pools.0.replicas"], ["a.pools.0.replicas", "b.pools.0.replicas"]),
        (["fleets.0.pools.0.replicas", "fleets.0.pools.1.replicas"], ["pools.0.replicas", "pools.1.replicas"]),
        (["slo.ttft_s", "x.slo.ttft_s"], ["slo.ttft_s", "x.slo.ttft_s"]),
        (["fleets.a.pools.0.gpu", "model"], ["gpu", "model"]),
        (["a.status", "seed"], ["a.status", "seed"]),
    ],
)
def test_labels(paths: list[str], labels: list[str]) -> None:
    assert list(axis_labels(paths).values()) == labels


words = st.text(any_of("ab"), min_size=1, max_size=2)


@pytest.mark.slow
@given(st.lists(st.lists(words, min_size=1, max_size=4).map(".".join), min_size=1, max_size=6, unique=True))
def test_labels_are_unique_suffixes(paths: list[str]) -> None:
    labels = axis_labels(paths)
    assert len(set(labels.values())) == len(paths)
    assert all(path == label or path.endswith(f".{label}") for path, label in labels.items())


@pytest.mark.slow
@given(st.lists(words, min_size=1, max_size=3, unique=True), st.data())
def test_a_place_is_found_by_its_dotted_path(names: list[str], data: st.DataObject) -> None:
    fleets = [{"name": name, "x": {"y.z": 1}} for name in names]
    i = data.draw(st.integers(0, len(names) - 1))
    assert place_of({"fleets": fleets}, f"fleets.{names[i]}.x.y.z") == ("fleets", i, "x", "y.z")
    assert place_of({"fleets": fleets}, f"fleets.{i}.x.new.key") == ("fleets", i, "x", "new", "key")


@pytest.mark.parametrize(("sweep", "times"), [(None, 1), ({"workload.arrivals.rate_rps": [1, 2, 3]}, 4)])
def test_schema_is_checked_once_and_at_each_point_of_a_sweep(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, sweep: Any, times: int
) -> None:
    file, checked, validate = tmp_path / "s.yaml", [], Scenario.model_validate
    file.write_text(dump(parse(TEXT) | {"sweep": sweep}))
    monkeypatch.setattr(Scenario, "model_validate", lambda data: (checked.append(data), validate(data))[1])
    load(file, catalog=catalog)
    assert len(checked) == times
