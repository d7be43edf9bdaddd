"""One row of a training table predicted."""

from dataclasses import dataclass, field, replace

from sim.benchdata.training import TrainingRow
from sim.catalogue.catalog import Catalog
from sim.steptime.coefficients import Coefficients, load_coefficients
from sim.study.fidelity.validate.training.case import TrainingCase, case_of
from sim.study.fidelity.validate.training.names import NotCovered
from sim.training.figures import TrainingData, load_training
from sim.training.memory import memory
from sim.training.rates import Rates
from sim.training.setting import habits, rates
from sim.training.steptime import step_time

BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True)
class TrainingPrediction:
    """What the model says about a row, in the units of its columns."""

    id: str
    status: str
    """covered or not_covered."""
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    gpu: str = ""
    stack: str = ""


@dataclass(frozen=True, slots=True)
class Figured:
    """What predictions rest on."""

    catalog: Catalog
    data: TrainingData
    kernels: Coefficients

    @classmethod
    def of(cls, catalog: Catalog) -> "Figured":
        """The files of *catalog*."""
        return cls(catalog, load_training(catalog.root), load_coefficients(catalog.root / "steptime.yaml"))


def predict_training(row: TrainingRow, figured: Figured) -> TrainingPrediction:
    """All metrics of *row*."""
    try:
        case = case_of(row, figured.catalog, figured.data)
    except NotCovered as error:
        return TrainingPrediction(row.id, "not_covered", str(error))
    job = case.job
    reached = rates(figured.data, figured.kernels, job.gpu, job.link, job.network, job.precision, case.stack)
    metrics = speed(case, reached)
    longest = figured.data.stacks[case.stack].longest_sequence
    fullest = replace(job, sequence=longest) if longest and row.count("seq_len") is None else job
    metrics["peak_memory_gb"] = memory(fullest, habits(figured.data, case.stack)).total_bytes / BYTES_PER_GB
    return TrainingPrediction(row.id, "covered", "", metrics, job.gpu.id, case.stack)


def speed(case: TrainingCase, reached: Rates) -> dict[str, float]:
    """step_s, samples_per_s and tokens_per_s of *case*."""
    job = case.job
    step = step_time(job, reached)
    samples = job.global_batch / step.step_s
    tokens = job.sequence if job.network.is_transformer else job.network.tokens_per_sample
    seconds = step.step_s / job.micro_batches if case.step_is_micro_batch else step.step_s
    return {"step_s": seconds, "samples_per_s": samples, "tokens_per_s": samples * tokens}
