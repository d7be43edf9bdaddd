"""Scenarios that `run` could not finish are refused before the simulation, and no input ends in a traceback."""

import json
import time
from itertools import cycle, product
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from small_scenario import REFEREE, SMALL, loaded, variant

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.hf_config.load import READERS, model_from_config
from sim.fleet.fleet import RunningFleet
from sim.scenario.checks.limits import _answered
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.yamlio import YamlError, read_text

AT_ONCE_S = 2.0
HPA = "{policy: hpa, metric: gpu_busy, target: 0.7, max_replicas: 2, scrape_interval_s: %s}"
CLOSED = "{process: closed_loop, concurrency: %s, think_s: %s}"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    found = load_catalog()
    found.gpu("rtx-4090")
    return found


def told(folder: Path, catalog: Catalog, text: str, *sets: str) -> list[str]:
    """Error lines of a scenario, found at once."""
    (folder / "s.yaml").write_text(text)
    started = time.process_time()
    with pytest.raises(ScenarioErrors) as caught:
        load(folder / "s.yaml", sets, catalog=catalog)
    assert time.process_time() - started < AT_ONCE_S
    return str(caught.value).replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("horizon_s: 100", "horizon_s: 100\nreplications: 1e9",
         "s.yaml:8: replications: 1 fleets x 1 sweep points x 1,000,000,000 replications are 1,000,000,000 cases; "
         "at most 100,000 (limits.cases raises it)"),
        ("    pools:\n      - ", "    pools:\n      - replicas: 1e9\n        ",
         "s.yaml:11: fleets.0.pools.0: 1,000,000,000 replicas (with their data-parallel ranks) in one fleet; "
         "at most 100,000 (limits.replicas raises it)"),
        ("    pools:\n      - ", "    pools:\n      - data_parallel_size: 1e9\n        ",
         "s.yaml:11: fleets.0.pools.0: 1,000,000,000 replicas"),
        ("horizon_s: 100", "horizon_s: 100\nmeter_interval_s: 1e-9",
         "s.yaml:8: meter_interval_s: about 100,000,000,000 rows of usage in one case (1 replicas, 100 s); "
         "at most 10,000,000 (limits.usage_rows raises it)"),
        ("{process: poisson, rate_rps: 1.0}", "{process: burst, num_requests: 1e9}",
         "s.yaml:3: workload.arrivals: about 1,000,000,000 requests in one case; "
         "at most 20,000,000 (limits.requests raises it)"),
        ("{process: poisson, rate_rps: 1.0}", "{process: poisson, rate_rps: 1e25}",
         "s.yaml:3: workload.arrivals: about 1e+27 requests in one case"),
        ("{process: poisson, rate_rps: 1.0}", CLOSED % (10**9, 0),
         "s.yaml:3: workload.arrivals: 1,000,000,000 clients"),
        ("    pools:\n      - ", "    pools:\n      - failures: {replica: {mtbf_h: 1e-12, repair_h: 0}}\n        ",
         "s.yaml:11: fleets.0.pools.0.failures.replica: about 56,000,000,000 rows of usage in one case, "
         "two for each outage of a replica; at most 10,000,000 (limits.usage_rows raises it)"),
        ("    pools:\n      - ", "    pools:\n      - spot: {interruptions_per_h: 1e12, recovery_h: 0, notice_s: 0}\n"
         "        ",
         "s.yaml:11: fleets.0.pools.0.spot.interruptions_per_h: about 56,000,000,000 rows"),
        ("    pools:\n      - ", f"    pools:\n      - autoscaling: {HPA % 1e-9}\n"
         "        cold_start: {total_s: 1}\n        ",
         "s.yaml:11: fleets.0.pools.0.autoscaling: about 200,000,000,000 readings and decisions of the autoscaler "
         "in one case; at most 100,000,000 (limits.readings raises it)"),
        ("horizon_s: 100", "horizon_s: 1e15", "s.yaml:3: workload.arrivals: about 1e+15 requests in one case"),
    ],
)  # fmt: skip
def test_runs_that_cannot_finish(tmp_path: Path, catalog: Catalog, old: str, new: str, line: str) -> None:
    assert REFEREE.count(old) == 1
    assert told(tmp_path, catalog, REFEREE.replace(old, new))[0].startswith(line)


def test_kv_that_takes_years(tmp_path: Path, catalog: Catalog) -> None:
    # 1000 prompts of 100 tokens with 1000 bytes each: 1e8 bytes over one port of 0.01 bytes/s
    pools = "kv_transfer: {bytes_per_s: %s}\n    pools:\n"
    held = REFEREE[REFEREE.index("      - ") :].replace(
        "      - ", "      - {role}\n        kv_bytes_per_token: 1000\n        "
    )
    head = REFEREE[: REFEREE.index("pools:")].replace("horizon_s: 100\n", "")
    head = head.replace("{process: poisson, rate_rps: 1.0}", "{process: burst, num_requests: 1000}")
    text = head + pools + held.replace("{role}", "role: prefill") + held.replace("{role}", "role: decode")
    assert told(tmp_path, catalog, text % 0.01) == [
        "s.yaml:9: fleets.0.kv_transfer: about 67,000,000 rows of usage in one case until the last KV is transferred, "
        "after 1e+10 s; at most 10,000,000 (limits.usage_rows raises it)"
    ]
    (tmp_path / "s.yaml").write_text(text % 1e6)
    load(tmp_path / "s.yaml", (), catalog=catalog)


def test_a_closed_loop_over_years(tmp_path: Path, catalog: Catalog) -> None:
    # 16 prompts of 100 tokens take 3.1 full steps of 15.1 ms, ten decode steps 10.2 ms each: 16 answers in 0.15 s
    text = REFEREE.replace("{process: poisson, rate_rps: 1.0}", CLOSED % (64, 0))
    text = text.replace("horizon_s: 100", "horizon_s: 1e9\nmeter_interval_s: 1e6")
    (line,) = told(tmp_path, catalog, text)
    assert line.startswith("s.yaml:3: workload.arrivals: about 110,000,000,000 requests in one case")


RATES, SEEDS = ([*range(1, 1001)], [*range(1000)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sweep",
    [
        f"{{workload.arrivals.rate_rps: {RATES}, seed: {SEEDS}}}",
        f"[{', '.join(f'{{seed: {seed}}}' for seed in range(12_000))}]",
    ],
)
def test_too_many_sweep_points(tmp_path: Path, catalog: Catalog, sweep: str) -> None:
    (line,) = told(tmp_path, catalog, f"{REFEREE}sweep: {sweep}\n")
    assert line.startswith("s.yaml:13: sweep: 1")
    assert line.endswith("sweep points; at most 10,000 (limits.points raises it)")


def test_a_limit_is_raised(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "s.yaml").write_text(REFEREE + "replications: 200000\n")
    with pytest.raises(ScenarioErrors):
        load(tmp_path / "s.yaml", catalog=catalog)
    found = load(tmp_path / "s.yaml", ["limits.cases=200000"], catalog=catalog)
    assert (found.replications, found.limits.cases) == (200_000, 200_000)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: " + "[" * 200_000, 1, "nests lists and mappings more than 50 levels deep"),
        ("a: " + "[" * 900 + "]" * 900, 1, "nests lists and mappings more than 50 levels deep"),
        ("\n".join(" " * i + "a:" for i in range(3000)), 51, "nests lists and mappings more than 50 levels deep"),
        ("- " * 100_000 + "x", 1, "nests lists and mappings more than 50 levels deep"),
        ("? " * 100_000, 1, "nests lists and mappings more than 50 levels deep"),
        (BOMB, 5, "more than 100000 values, aliases written out"),
        ("a: [" + "1," * 300_000 + "]", 1, "more than 100000 values, aliases written out"),
        (
            "a: 1\nname: " + "x" * 1_000_000,
            2,
            "a text of 1000000 characters ('xxxxxxxxxxxxxxxxxxxx...'); at most 10000",
        ),
        ("x" * 500_000 + ": 1", 1, "is not valid YAML"),
        ("a: " + "9" * 4000, 1, f"'{'9' * 40}' is not a usable number"),
        ('a: "\\e[31mred"', 1, "the text '\\x1b[31mred' holds the control character '\\x1b'"),
        (
            'a: !!python/object/apply:os.system ["x"]',
            1,
            "the tag tag:yaml.org,2002:python/object/apply:os is not allowed",
        ),
    ],
)
def test_hostile_yaml(text: str, line: int, what: str) -> None:
    started = time.process_time()
    with pytest.raises(YamlError) as caught:
        read_text(text, "f.yaml")
    assert time.process_time() - started < AT_ONCE_S
    assert (caught.value.line, caught.value.message[: len(what)]) == (line, what)


@pytest.mark.parametrize("key", ["name", "fleets"])
def test_long_names(tmp_path: Path, catalog: Catalog, key: str) -> None:
    text = REFEREE.replace("name: referee" if key == "name" else "name: a", "name: " + "x" * 5000, 1)
    (line,) = told(tmp_path, catalog, text)
    assert line.endswith("name: at most 200 characters, not 5000")


@pytest.mark.parametrize("key", ["gpu", "model", "engine", "quantization", "server", "link", "kernel", "calibration"])
def test_ids_of_5000_characters(tmp_path: Path, catalog: Catalog, key: str) -> None:
    lines = told(tmp_path, catalog, REFEREE.replace("- steptime", f"- {key}: {'x' * 5000}\n        steptime"))
    assert any(f"s.yaml:11: fleets.0.pools.0.{key}: " in line for line in lines)
    assert told(tmp_path, catalog, f"base: {'x' * 5000}\n")[0].startswith("s.yaml:1: base: there is no file xx")


ODD: list[Any] = [None, True, 0, -1, 1.5, 10**30, 10**9, 1e308, float("nan"), "", "x", [], [1], {}, {"a": 1}, "é\ud800"]
KEYS = {
    **dict.fromkeys(["hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings", "ffn_dim"], 4096),
    **dict.fromkeys(["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "n_layer", "n_head"], 8),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"], 8),
    **dict.fromkeys(["moe_intermediate_size", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"], 64),
    **dict.fromkeys(["sliding_window", "sliding_window_pattern", "shared_expert_intermediate_size"], 64),
    **dict.fromkeys(["n_embed", "v_head_dim"], 64),
    "layer_types": ["sliding_attention"] * 8, "torch_dtype": "bfloat16", "text_config": None, "head_dim": 64,
    "quantization_config": {"quant_method": "fp8"}, "tie_word_embeddings": True, "_name_or_path": "x", "q_lora_rank": 8,
}  # fmt: skip


@pytest.mark.slow
def test_hostile_configs(tmp_path: Path) -> None:
    """Every key with an odd value, for every architecture: a model or one line. In turn, so that each key has each."""
    assert gcd(len(KEYS), len(ODD)) == 1
    odd = cycle(ODD)
    models = 0
    for kind, key in product(sorted(READERS), KEYS):
        told_by, model = config_told(tmp_path, {**KEYS, "model_type": kind, key: next(odd)})
        assert model is not None or len(told_by.splitlines()) == 1
        models += model is not None and model.isprintable()
    assert models > len(READERS)


@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "laguna", "num_hidden_layers": 10**9},
        {"model_type": "exaone4", "num_hidden_layers": 10**9, "sliding_window_pattern": "LLLG"},
        {"model_type": "iquest_q1", "num_hybrid_layers_block": 10**9, "dense_intermediate_size": 64},
    ],
)
def test_a_config_of_a_thousand_million_layers_is_read_at_once(tmp_path: Path, keys: dict[str, Any]) -> None:
    started = time.process_time()
    config_told(tmp_path, {**KEYS, **keys})
    assert time.process_time() - started < AT_ONCE_S


def config_told(folder: Path, keys: dict[str, Any]) -> tuple[str, str | None]:
    """Return the error of a config of *keys*, or the model's name."""
    (folder / "config.json").unlink(missing_ok=True)  # a file that is written over waits for the disk
    (folder / "config.json").write_text(json.dumps(keys))
    try:
        return "", model_from_config(folder).name
    except ConfigError as error:
        return str(error), None


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b"\xff\xfe{", b'{"model_type": []}', b'{"model_type": {}}', b'{"model_type": NaN}', b"", b"null",
     b'{"model_type": ' + b"9" * 5000 + b"}", b"x" * 9_000_000],
)  # fmt: skip
def test_files_that_are_no_config(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.json: "):
        model_from_config(tmp_path)


@pytest.mark.slow
def test_limits_are_in_the_schema() -> None:
    assert "limits" in Scenario.model_json_schema()["properties"]


def test_a_value_of_10000_characters_is_not_repeated(tmp_path: Path, catalog: Catalog) -> None:
    (line,) = told(tmp_path, catalog, REFEREE.replace("horizon_s: 100", f"horizon_s: {'x' * 9000}"))
    assert line.startswith("s.yaml:7: horizon_s: a number is needed, not 'xxx")
    assert len(line) < 700


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 8])
def test_the_requests_of_a_closed_loop_on_pipeline_stages_are_those_of_a_run(tmp_path: Path, clients: int) -> None:
    changes = {
        "workload.arrivals": {"process": "closed_loop", "concurrency": clients},
        "workload.lengths.output": {"distribution": "fixed", "value": 40},
        "fleets.0.pools.0.gpu": "l40s",
        "fleets.0.pools.0.pipeline_parallel_size": 3,
        "horizon_s": 50,
    }
    scenario = loaded(tmp_path, variant(SMALL, changes))
    plan = resolve(scenario, cases(scenario)[0], load_catalog())
    served = RunningFleet(plan).run().requests
    answered = sum(one.finished_s is not None and one.finished_s <= 50 for one in served)
    loop = scenario.workload.closed_loop()
    assert loop is not None
    assert _answered(scenario, loop, plan.pools, 50) == pytest.approx(answered, rel=0.2)
