"""How long prompts and answers are. A new law: its file here and its name in `Length`.

A law is its quantile function: request i of a stream has length quantile(u_i), whatever the law's parameters, the fleet
or the load, so that two points of a sweep meet the same requests.
"""

from typing import Annotated

from pydantic import Field

from sim.spec import Spec
from sim.workload.lengths.empirical import Empirical
from sim.workload.lengths.fixed import Fixed
from sim.workload.lengths.geometric import Geometric
from sim.workload.lengths.lognormal import Lognormal
from sim.workload.lengths.uniform import Uniform

Length = Annotated[Fixed | Uniform | Lognormal | Geometric | Empirical, Field(discriminator="distribution")]


class Lengths(Spec):
    """The lengths of prompts and of answers, drawn independently of each other."""

    prompt: Length
    """Prompt tokens."""
    output: Length
    """Output tokens; the answer always has exactly as many."""


__all__ = ["Empirical", "Fixed", "Geometric", "Length", "Lengths", "Lognormal", "Uniform"]
