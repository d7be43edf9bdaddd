"""One mistake gives one message: consequences of a mistake are not reported as well."""

from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.yamlio import dump

CATALOG = load_catalog()
LENGTH = {"distribution": "fixed", "value": 9}
WORKLOAD = {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": {"prompt": LENGTH, "output": LENGTH}}
STEP = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-4, "per_context_token_s": 0}
POOL = {"steptime": STEP, "batching": {"policy": "vllm", "num_gpu_blocks": 90, "max_model_len": 900}}
FAIR = POOL | {"batching": POOL["batching"] | {"scheduling": "fair"}}
CARD = {"gpu": "rtx-4090", "model": "llama3.1-8b"}
LORA = CARD | {"lora": {"max_loras": 2}}


def messages(folder: Path, pool: dict[str, Any], more: dict[str, Any], **own: Any) -> list[str]:
    (folder / "s.yaml").write_text(
        dump({"name": "s", "horizon_s": 9, "fleets": [{"name": "a", "pools": [pool]} | own]} | more)
    )
    with pytest.raises(ScenarioErrors) as found:
        load(folder / "s.yaml", (), catalog=CATALOG)
    return [str(one).split(": ", 1)[1] for one in found.value.errors]


@pytest.mark.parametrize(
    ("tenants", "told"),
    [
        ([{"name": "a", "weight": 0}], "workload.tenants.0.weight: must be above 0, not 0"),
        ([{"name": "a"}, {"name": "a"}], "workload: tenants: 'a' is given twice"),
        ([{"name": "(nobody)"}],
         "workload: tenants: '(nobody)' is the row of costs that no request causes: choose another name"),
    ],
)  # fmt: skip
def test_of_tenants_that_fair_shares_need(tenants: list[dict[str, Any]], told: str, tmp_path: Path) -> None:
    assert messages(tmp_path, FAIR, {"workload": WORKLOAD | {"tenants": tenants}}) == [told]
    (found,) = messages(tmp_path, FAIR, {"workload": WORKLOAD})
    assert "the workload has none: give tenants" in found


def test_of_adapters_that_slots_and_routers_need(tmp_path: Path) -> None:
    routing = {"policy": "adapter_affinity"}
    wrong = messages(tmp_path, LORA, {"workload": WORKLOAD | {"adapters": {"count": 0}}}, routing=routing)
    assert wrong == ["workload.adapters.count: must be above 0, not 0"]
    assert len(messages(tmp_path, LORA, {"workload": WORKLOAD}, routing=routing)) == 2


def test_fiscal_years_by_the_calendar_need_a_date(tmp_path: Path) -> None:
    finance = {"method": "straight_line", "life_years": 3, "fiscal_year_start_month": 4}
    told = "finance.fiscal_year_start_month: needs a date: state the month of delivery in price_paths.starts, or a plan"
    assert messages(tmp_path, CARD, {"workload": WORKLOAD, "finance": finance}) == [told]
    finance["fiscal_year_start_month"] = 13
    (found,) = messages(tmp_path, CARD, {"workload": WORKLOAD, "finance": finance})
    assert "must be at most 12" in found


def test_issues_of_services_with_unknown_names(tmp_path: Path) -> None:
    services = [{"name": name, "model": "llama3.1-8b", "workload": WORKLOAD} for name in ("chat", "code")]
    pool = {"gpu": "rtx-4090", "services": ["chat", "cod"]}
    told = "fleets.0.pools.0.services: there is no service 'cod'; did you mean code?"
    assert messages(tmp_path, pool, {"services": services}) == [told]


def test_of_a_word_where_a_list_may_stand(tmp_path: Path) -> None:
    pool = POOL | {"batching": POOL["batching"] | {"kv_groups": "modle"}}
    (told,) = messages(tmp_path, pool, {"workload": WORKLOAD})
    assert told.endswith("kv_groups: must be one of model, mean, not 'modle'; did you mean model?")


@pytest.mark.parametrize(
    ("engine", "stated", "told"),
    [
        ("vllm", {"moe_backend": "TRTLLM"}, "moe_backend: must be one of auto, triton, "),
        ("tensorrt-llm-1.0", {"moe_backend": "cutlass"}, ", not 'cutlass'; did you mean CUTLASS?"),
        ("llama.cpp", {"moe_backend": "auto"}, "is an option of vllm, sglang, tensorrt-llm, not of llama.cpp"),
        ("vllm-0.14", {"fp8_gemm_backend": "triton"}, "is an option of sglang, not of vllm-0.14"),
        ("sglang", {"moe_backend": "triton_kernl"}, "not 'triton_kernl'; did you mean triton_kernel?"),
    ],
)
def test_kernels_are_those_of_the_engine(engine: str, stated: dict[str, str], told: str, tmp_path: Path) -> None:
    pool = CARD | {"engine": engine, "steptime": {"model": "roofline"} | stated}
    (found,) = messages(tmp_path, pool, {"workload": WORKLOAD})
    assert told in found
