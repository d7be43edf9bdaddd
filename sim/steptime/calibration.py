"""A host and a GPU as somebody measured them: factors on what data/ says, and where they apply."""

from dataclasses import replace
from math import inf

from pydantic import Field

from sim.catalogue.engine import Engine
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.value import Value
from sim.spec import Count, NonNegative, Positive, Spec
from sim.steptime.coefficients import Efficiency, StepTimeCoefficients
from sim.steptime.inputs import RooflineInputs

STEP_OVERHEADS = ("per_layer_s", "per_step_s")
SEQUENCE_OVERHEADS = ("per_sequence_s", "per_sequence_in_process_s", "per_prompt_token_s")
TABLES = ("allreduce_tables", "nccl_tables", "exchange_tables", "socket_tables")
"""Of a link: what was measured of each collective."""


class Factor(Spec):
    """What a figure in data/ is multiplied by, with the interval that holds it in 95 of 100 cases."""

    factor: Positive = 1.0
    low: Positive = 1.0
    high: Positive = 1.0
    determined: bool = False
    """Whether the runs say more than what was known before; if not, the factor is 1."""


class HostFactors(Spec):
    """Host time under one engine."""

    step_overhead: Factor = Factor()
    """Per layer and per step."""
    sequence_overhead: Factor = Factor()
    """Per sequence in a step, and per token of a prompt."""
    request_overhead: Factor = Factor()
    """Before a request's first token."""


class LinkFactors(Spec):
    """Time of collectives over one link."""

    latency: Factor = Factor()
    """Of the smallest messages."""
    time_per_byte: Factor = Factor()


class Errors(Spec):
    """Median |error| of one metric over the runs."""

    rows: Count
    before: NonNegative
    after: NonNegative


class OwnRuns(Spec):
    """Runs of one model in one layout, and the loads that they were measured at."""

    model: str
    quantization: str
    engine: str
    """Ids in data/."""
    tensor_parallel_size: Count = 1
    pipeline_parallel_size: Count = 1
    data_parallel_size: Count = 1
    runs: Count
    sequences: tuple[Positive, Positive] | None = None
    """The fewest and the most in flight; None: not known."""
    prompt: tuple[Positive, Positive]
    """The shortest and the longest mean prompt [tokens]."""


class Calibration(Spec):
    """What `gpufleet calibrate` writes. It applies to pools of its GPU, host times by engine, links by id."""

    gpu: str
    """Id in data/gpus."""
    table: str = ""
    """The runs that it was fitted to."""
    rows: Count = 1
    measured: tuple[OwnRuns, ...] = ()
    """What ran in them."""
    compute_efficiency: Factor = Factor()
    memory_efficiency: Factor = Factor()
    engines: dict[str, HostFactors] = Field(default={})
    links: dict[str, LinkFactors] = Field(default={})
    errors: dict[str, Errors] = Field(default={})

    def engine(self, engine: Engine) -> Engine:
        """*engine* with the host's own times."""
        host, overheads = self.engines.get(engine.id), engine.overheads
        if host is None or overheads is None:
            return engine
        factors = dict.fromkeys(STEP_OVERHEADS, host.step_overhead)
        factors |= dict.fromkeys(SEQUENCE_OVERHEADS, host.sequence_overhead)
        factors["per_request_s"] = host.request_overhead
        known = {name: value for name in factors if (value := getattr(overheads, name)) is not None}
        scaled = {name: self._scaled(value, factors[name]) for name, value in known.items()}
        return engine.model_copy(update={"overheads": overheads.model_copy(update=scaled)})

    def link(self, link: Link) -> Link:
        """*link* with the host's own collectives."""
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
                "allreduce_latency_s": {n: self._scaled(v, own.latency) for n, v in link.allreduce_latency_s.items()},
                "allreduce_bus_bytes_per_s": {
                    n: self._scaled(v, rate) for n, v in link.allreduce_bus_bytes_per_s.items()
                },
                "measured_bytes_per_s": link.measured_bytes_per_s and self._scaled(link.measured_bytes_per_s, rate),
            }
        )

    def coefficients(self, coefficients: StepTimeCoefficients, gpu: Gpu) -> StepTimeCoefficients:
        """*coefficients* with the card's own efficiencies, which stay at most 1."""
        usual = coefficients.efficiency(gpu)
        own = Efficiency(
            compute=self._scaled(usual.compute, self.compute_efficiency, 1.0),
            memory=self._scaled(usual.memory, self.memory_efficiency, 1.0),
        )
        return coefficients.model_copy(update={"gpus": {**coefficients.gpus, gpu.id: own}})

    def inputs(self, inputs: RooflineInputs) -> RooflineInputs:
        """All of it at once."""
        return replace(
            inputs,
            engine=self.engine(inputs.engine),
            link=self.link(inputs.link),
            coefficients=self.coefficients(inputs.coefficients, inputs.gpu),
        )

    def _scaled(self, value: Value, factor: Factor, most: float = inf) -> Value:
        if factor.factor == 1.0 or value.value == 0:
            return value
        now = min(most, value.value * factor.factor)
        return Value(
            value=now,
            range=(min(now, value.value * factor.low), max(now, min(most, value.value * factor.high))),
            source="calibration",
            where=f"{self.rows} runs in {self.table}" if self.table else "own runs",
            kind="fitted",
            note=f"{value.value:g} in data/",
        )


def _collective_s(time_s: float, smallest_s: float, latency: float, per_byte: Factor) -> float:
    """A time of a measured table: what the smallest message takes is latency, all above grows with the bytes."""
    return smallest_s * latency + (time_s - smallest_s) * per_byte.factor
