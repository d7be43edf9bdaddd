"""Calibration of a user's own server: factors on the figures of data/, and the range of the measured runs."""

from dataclasses import replace
from math import inf

from pydantic import Field

from sim.catalogue.engine import Engine
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.value import Value
from sim.message import Message
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber
from sim.steptime.coefficients import Efficiency, StepTimeCoefficients
from sim.steptime.inputs import RooflineInputs

STEP_OVERHEADS = ("per_layer_s", "per_step_s")
SEQUENCE_OVERHEADS = ("per_sequence_s", "per_sequence_in_process_s", "per_prompt_token_s")
TABLES = ("allreduce_tables", "nccl_tables", "exchange_tables", "socket_tables")
"""Fields of a link that hold measured collectives."""


class Factor(Spec):
    """Factor on a figure of data/, with its 95 % interval."""

    factor: Positive = 1.0
    low: Positive = 1.0
    high: Positive = 1.0
    determined: bool = False
    """True if the runs determine the factor beyond prior knowledge; if not, the factor is 1."""


class HostFactors(Spec):
    """Factors on an engine's host times."""

    step_overhead: Factor = Factor()
    """Factor on the host time per layer and per step."""
    sequence_overhead: Factor = Factor()
    """Factor on the host time per sequence in a step and per prompt token."""
    request_overhead: Factor = Factor()
    """Factor on the time before a request's first token."""


class LinkFactors(Spec):
    """Factors on the time of collectives over one link."""

    latency: Factor = Factor()
    """Factor on the time of the smallest messages."""
    time_per_byte: Factor = Factor()


class Errors(Spec):
    """Median absolute error of one metric over the runs, before and after calibration [1]."""

    rows: Count
    before: NonNegative
    after: NonNegative


class CalibrationRuns(Spec):
    """Calibration runs of one model in one layout, with the range of loads measured."""

    model: str
    quantization: str
    engine: str
    """Id of the engine; model, quantization and engine are ids in data/."""
    tensor_parallel_size: Count = 1
    pipeline_parallel_size: Count = 1
    data_parallel_size: Count = 1
    runs: Count
    sequences: tuple[Positive, Positive] | None = None
    """Minimum and maximum number of sequences in flight; None: unknown."""
    prompt: tuple[Positive, Positive]
    """Minimum and maximum mean prompt length [tokens]."""


class Calibration(Spec):
    """Output of `gpufleet calibrate`: factors for pools with its GPU, host times by engine, links by id."""

    gpu: str
    """Id of the GPU, in data/gpus."""
    table: str = ""
    """Name of the table of runs used in the fit."""
    rows: WholeNumber = 1
    """Number of runs used in the fit; 0: all-reduces alone."""
    measured: tuple[CalibrationRuns, ...] = ()
    """Runs used in the fit, by model and layout."""
    compute_efficiency: Factor = Factor()
    memory_efficiency: Factor = Factor()
    engines: dict[str, HostFactors] = Field(default={})
    links: dict[str, LinkFactors] = Field(default={})
    errors: dict[str, Errors] = Field(default={})

    def engine(self, engine: Engine) -> Engine:
        """Return *engine* with calibrated host times."""
        host, overheads = self.engines.get(engine.id), engine.overheads
        if host is None or overheads is None:
            return engine
        factors = dict.fromkeys(STEP_OVERHEADS, host.step_overhead)
        factors |= dict.fromkeys(SEQUENCE_OVERHEADS, host.sequence_overhead)
        factors["per_request_s"] = host.request_overhead
        known = {name: value for name in factors if (value := getattr(overheads, name)) is not None}
        scaled = {name: self._multiplied(value, factors[name]) for name, value in known.items()}
        return engine.model_copy(update={"overheads": overheads.model_copy(update=scaled)})

    def link(self, link: Link) -> Link:
        """Return *link* with calibrated collective times."""
        own = self.links.get(link.id)
        if own is None:
            return link
        latency, per_byte = own.latency.factor, own.time_per_byte
        rate = Factor(factor=1 / per_byte.factor, low=1 / per_byte.high, high=1 / per_byte.low)
        tables = {
            name: tuple(
                table.model_copy(
                    update={"time_s": tuple(_collective_s(t, table.time_s[0], latency, per_byte) for t in table.time_s)}
                )
                for table in getattr(link, name)
            )
            for name in TABLES
        }
        return link.model_copy(
            update={
                **tables,
                "allreduce_latency_s": {
                    n: self._multiplied(v, own.latency) for n, v in link.allreduce_latency_s.items()
                },
                "allreduce_bus_bytes_per_s": {
                    n: self._multiplied(v, rate) for n, v in link.allreduce_bus_bytes_per_s.items()
                },
                "measured_bytes_per_s": link.measured_bytes_per_s and self._multiplied(link.measured_bytes_per_s, rate),
            }
        )

    def coefficients(self, coefficients: StepTimeCoefficients, gpu: Gpu) -> StepTimeCoefficients:
        """Return *coefficients* with the card's calibrated efficiencies, which are at most 1."""
        usual = coefficients.efficiency(gpu)
        own = Efficiency(
            compute=self._multiplied(usual.compute, self.compute_efficiency, 1.0),
            memory=self._multiplied(usual.memory, self.memory_efficiency, 1.0),
        )
        return coefficients.model_copy(update={"gpus": {**coefficients.gpus, gpu.id: own}})

    def inputs(self, inputs: RooflineInputs) -> RooflineInputs:
        """Return *inputs* with calibrated engine, link and coefficients."""
        return replace(
            inputs,
            engine=self.engine(inputs.engine),
            link=self.link(inputs.link),
            coefficients=self.coefficients(inputs.coefficients, inputs.gpu),
        )

    def _multiplied(self, value: Value, factor: Factor, most: float = inf) -> Value:
        if factor.factor == 1.0 or value.value == 0:
            return value
        now = min(most, value.value * factor.factor)
        return Value(
            value=now,
            range=(min(now, value.value * factor.low), max(now, min(most, value.value * factor.high))),
            source="calibration",
            where=Message("{rows} runs in {table}", self.rows, self.table) if self.table else "own runs",
            kind="fitted",
            note=Message("{value:g} in data/", value.value),
        )


def _collective_s(time_s: float, smallest_s: float, latency: float, per_byte: Factor) -> float:
    """Return the calibrated time of a table point [s].

    The time of the smallest message counts as latency, the time above it as proportional to the bytes.
    """
    return smallest_s * latency + (time_s - smallest_s) * per_byte.factor
