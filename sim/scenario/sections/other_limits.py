"""A service level with some of its limits replaced, as `--set slo.ttft_s=2` says them."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sim.scenario.reading.errors import InputError, ScenarioErrors, complaints, did_you_mean, dotted
from sim.scenario.sections.slo import Slo


def with_limits(slo: Slo, values: Mapping[str, Any]) -> Slo:
    """*slo* with *values*: `ttft_s`, or `ttft_s.p99` for one of its percentiles, -> limit. Raises ScenarioErrors.

    >>> with_limits(Slo(ttft_s=3.0), {"tpot_s.p99": 0.1, "attainment": 0.9}).model_dump(exclude_none=True)
    {'ttft_s': 3.0, 'tpot_s': {'p99': 0.1}, 'attainment': 0.9}
    """
    data = slo.model_dump(exclude_unset=True)
    wrong = []
    for path, value in values.items():
        name, _, percentile = path.partition(".")
        if name not in Slo.model_fields:
            wrong.append(InputError(f"--set slo.{path}", 0, "", f"is no limit{did_you_mean(name, Slo.model_fields)}"))
        held = data.get(name)
        data[name] = {**(held if isinstance(held, dict) else {}), percentile: value} if percentile else value
    if wrong:
        raise ScenarioErrors(wrong)
    try:
        return Slo.model_validate(data)
    except ValidationError as error:
        told = complaints(error, Slo, data)
        raise ScenarioErrors(InputError(f"--set slo.{dotted(one.place)}", 0, "", one.message) for one in told) from None
