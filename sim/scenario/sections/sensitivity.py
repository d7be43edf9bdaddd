"""What `gpufleet sensitivity` varies and compares, as a scenario says it."""

from typing import Annotated, Literal

from pydantic import Field

from sim.spec import Spec

SensitivityMetric = Literal["usd_per_million_output_tokens", "ttft_s_p95", "tpot_s_p95"]


class Relative(Spec):
    """By how much less and more than the scenario states."""

    relative: Annotated[float, Field(gt=0, lt=1)]
    """0.3: from 70 % to 130 %."""


class Sensitivity(Spec):
    """Which inputs move the result, and by how much. Every key is optional."""

    inputs: Annotated[dict[str, tuple[float, float] | Relative], Field(min_length=1)] | None = None
    """Dotted path of a number -> [low, high] or {relative: 0.3}. Left out: prices and rates, prices of the hardware,
    load and lengths, each 30 % less and more."""
    metric: SensitivityMetric = "usd_per_million_output_tokens"
    """What they move."""
    between: tuple[str, str] | None = None
    """The fleets whose difference is reported, the first less the second; left out: the first two."""
