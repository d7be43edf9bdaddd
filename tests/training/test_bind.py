"""Scenarios with a job: what may stand where, and every mistake with its line and what fits."""

from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.value import Value
from sim.jobs.load import load_job
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.training.bind import JobHardware, bind_job, gpus_of, job_figures
from sim.training.figures import TrainingFigures, rates
from sim.training.plan import training_facts
from sim.training.steptime import step_time
from sim.yamlio import dump

JOB = {"kind": "training", "model": "llama3.1-8b", "tokens": 1e9, "global_batch": 64, "sequence": 2048}
A100 = {"gpu": "a100-80gb-sxm", "gpus": 8}
Data = dict[str, Any]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def scenario(pool: Data, job: Data, **more: Any) -> Data:
    return {"job": {**JOB, **job}, "fleets": [{"name": "f", "pools": [pool]}], **more}


def written(folder: Path, data: Data) -> Path:
    path = folder / "s.yaml"
    path.write_text(dump({key: {k: v for k, v in one.items() if v is not None} if key == "job" else one
                          for key, one in data.items()}))  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("pool", "job", "complaint"),
    [
        (A100, {"parallel": {"tp": 3}}, "job.parallel.tp: 3 does not divide the 32 heads of llama3.1-8b: 1, 2, 4"),
        (A100, {"parallel": {"pp": 5}}, "job.parallel.pp: 5 does not divide the 32 layers"),
        (A100, {"parallel": {"pp": 4, "virtual_stages": 3}}, "pp 4 x virtual_stages 3 does not divide the 32 layers"),
        (A100, {"parallel": {"tp": 16}}, "fleets.0.pools.0.gpus: 8 GPUs are not tp 16 = 16 or a multiple: gpus: 16"),
        (A100, {"parallel": {"tp": 2, "dp": 8}}, "8 GPUs are not dp 8 x tp 2 = 16: gpus: 16"),
        (A100, {"parallel": {"ep": 4}}, "job.parallel.ep: llama3.1-8b has no experts"),
        (A100, {"global_batch": 60}, "job.global_batch: 60 samples do not divide by the 8 data-parallel ranks of"),
        (A100, {"parallel": {"micro_batch": 3}}, "3 does not divide the 8 samples of a data-parallel rank: 1, 2, 4"),
        (A100, {"precision": "fp8"}, "job.precision: a100-80gb-sxm has no fp8: fp32, tf32, fp16, bf16"),
        ({**A100, "gpus": 16}, {}, "fleets.0.pools.0.network: is missing: 16 GPUs fill more than one server of 8"),
        ({**A100, "replicas": 2}, {}, "fleets.0.pools.0.gpus: 8 GPUs are not dp 2 = 2: gpus: 2"),
        ({**A100, "replicas": 2, "parallel": {"dp": 4}}, {}, "both count copies of the model: 2 or 4?"),
        ({**A100, "batching": {"policy": "vllm"}}, {}, "fleets.0.pools.0.batching: applies to a workload of requests"),
        ({**A100, "server": "dgx-h100"}, {}, "dgx-h100 is built for h100-80gb-sxm, not for a100-80gb-sxm"),
        ({**A100, "framework": "megatrn"}, {}, "unknown framework 'megatrn'; did you mean megatron-2021?"),
        (A100, {"samples": 5}, "job: needs tokens or samples, not both"),
        (A100, {"sequence": None}, "job.sequence: is missing: tokens of a sample"),
        (A100, {"model": "resnet-50"}, "job.tokens: resnet-50 has no tokens: give samples"),
        (A100, {"model": "vit-b-16"}, "job.tokens: vit-b-16 has no tokens: give samples"),
        (A100, {"model": "dlrm"}, "job.model: the training cost of dlrm is not known; known are language models, BERT"),
        (A100, {"model": "llama9"}, "job.model: unknown model 'llama9'"),
        (A100, {"checkpoint": {}}, "job.checkpoint: needs bytes_per_s"),
        (A100, {"failures": {}}, "job.failures: states no component"),
    ],
)
def test_a_mistake_is_one_line_that_names_what_fits(
    tmp_path: Path, catalog: Catalog, pool: Data, job: Data, complaint: str
) -> None:
    path = written(tmp_path, scenario(pool, job))
    with pytest.raises(ScenarioErrors) as told:
        load_job(path, catalog=catalog)
    assert complaint in str(told.value)
    assert all(line.startswith(f"{path}:") and line.split(":")[1].isdigit() for line in str(told.value).splitlines())


def test_what_is_about_requests_has_no_place_beside_a_job(tmp_path: Path, catalog: Catalog) -> None:
    path = written(tmp_path, scenario(A100, {}, slo={"ttft_s": 1}))
    with pytest.raises(ScenarioErrors, match=r"slo: applies to a workload of requests"):
        load_job(path, catalog=catalog)


def test_a_job_is_refused_by_commands_for_services(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(ScenarioErrors, match=r"s.yaml:1: job: .*use run, check or price"):
        load(written(tmp_path, scenario(A100, {})), catalog=catalog)


def test_a_swept_size_is_blamed_at_its_value(tmp_path: Path, catalog: Catalog) -> None:
    sweep = {"job.parallel.tp": [2, 3], "job.global_batch": [64]}
    path = written(tmp_path, scenario(A100, {}, sweep=sweep))
    with pytest.raises(ScenarioErrors, match=r"sweep.job.parallel.tp.1: .*3 does not divide the 32 heads"):
        load_job(path, catalog=catalog)


B200 = {"gpu": "b200-180gb-sxm", "gpus": 16, "network": {"link": "infiniband-ndr", "adapters": 8}}
MOE = {"model": "qwen3-30b-a3b", "parallel": {"dp": 16, "ep": 16, "zero": 1, "recompute": "full"}}
IMAGES = {"model": "resnet-50", "sequence": None, "tokens": None, "samples": 1000}


@pytest.mark.parametrize(
    ("pool", "job"),
    [
        (A100, {}),
        ({**A100, "gpus": 1}, {"lora": {"weights": "4bit"}, "parallel": {"recompute": "selective"}}),
        ({**B200, "precision": "fp8", "framework": "megatron-2021"}, MOE),
        ({**A100, "precision": "tf32"}, IMAGES),
    ],
)
def test_facts_list_the_fitted_figures_that_matter(tmp_path: Path, catalog: Catalog, pool: Data, job: Data) -> None:
    loaded = load_job(written(tmp_path, scenario(pool, job)), catalog=catalog)
    wanted, known = loaded.fleets[0].pools[0], job_figures(catalog)
    one, hardware = bind_job(loaded.job, wanted, catalog), JobHardware.of(wanted, catalog)
    bound = one.job

    def step_s(figures: TrainingFigures) -> float:
        data = known.data.model_copy(update={"figures": figures})
        inputs = known.kernels, bound.gpu, bound.link, bound.network, bound.precision, one.framework
        return step_time(bound, rates(data, *inputs)).step_s

    figures, moving = known.data.figures, set()
    for name in type(figures).model_fields:
        value = getattr(figures, name)
        if isinstance(value, Value):
            other = value.model_copy(update={"value": 1.1 * value.value})
            moving |= {name} if step_s(figures.model_copy(update={name: other})) != step_s(figures) else set()
    paths = [fact.path.split(".") for fact in training_facts("fleets.f", one, hardware, catalog)]
    assert {path[-1] for path in paths if path[-2] == "training"} == moving
    assert len([path for path in paths if path[-2:-1] == ["gpu"] and path[-3] == "training"]) == 2


def test_the_pool_wins_key_by_key(tmp_path: Path, catalog: Catalog) -> None:
    pool = {**A100, "precision": "fp16", "parallel": {"zero": 3}}
    found = load_job(written(tmp_path, scenario(pool, {"parallel": {"tp": 2, "zero": 1}})), catalog=catalog)
    one = bind_job(found.job, found.fleets[0].pools[0], catalog)
    assert (one.job.parallel.tensor, one.job.parallel.data, one.job.parallel.zero) == (2, 4, 3)
    assert (one.job.precision, one.framework) == ("fp16", "nemo")


def test_a_micro_batch_that_is_left_out_is_the_fastest_that_fits(tmp_path: Path, catalog: Catalog) -> None:
    def with_batch(samples: int | None) -> Any:
        parallel = {"zero": 3} | ({"micro_batch": samples} if samples else {})
        found = load_job(written(tmp_path, scenario(A100, {"parallel": parallel})), catalog=catalog)
        return bind_job(found.job, found.fleets[0].pools[0], catalog)

    chosen, tried = with_batch(None), [with_batch(samples) for samples in (1, 2, 4, 8)]
    fitting = [one for one in tried if one.fits]
    assert 0 < len(fitting) < 4
    assert chosen == min(fitting, key=lambda one: one.step.step_s)


def test_replicas_of_a_pool_are_data_parallel(tmp_path: Path, catalog: Catalog) -> None:
    pool = {key: value for key, value in A100.items() if key != "gpus"}
    loaded = load_job(written(tmp_path, scenario({**pool, "replicas": 4}, {"parallel": {"tp": 2}})), catalog=catalog)
    (fleet,) = loaded.fleets
    assert bind_job(loaded.job, fleet.pools[0], catalog).job.parallel.data == 4
    assert gpus_of(fleet.pools[0].parallel.over(loaded.job.parallel), fleet.pools[0]) == 8
