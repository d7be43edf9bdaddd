"""Names that the program counts by, as they stand in tables and charts: declared for the catalogues of languages.

In files and in code they are ids (`gpu_capital`); whoever shows one passes it through `name_told`.
"""

from collections.abc import Iterator

from sim.language import N_, _
from sim.scenario.resolving.terms import ReportingFleets
from sim.scenario.schema import Scenario
from sim.scenario.sections.breakeven import OWN_WAY

COMPONENTS = (
    *(N_("GPU capital"), N_("server capital"), N_("network storage"), N_("spares"), N_("sales tax"), N_("deployment")),
    *(
        N_("decommissioning"),
        N_("rent"),
        N_("rental"),
        N_("commitment"),
        N_("unused commitment"),
        N_("energy"),
        N_("electricity"),
        N_("demand"),
    ),
    *(N_("hosting"), N_("maintenance"), N_("software"), N_("staff"), N_("failures"), N_("egress"), N_("carbon")),
)
"""Of the bill."""
PHASES = (N_("booting"), N_("prefill"), N_("decode"), N_("recompute"), N_("idle"), N_("serving"))
CAUSES = (N_("compute"), N_("memory"), N_("attention"), N_("link"), N_("host"), N_("overhead"), N_("load"))
"""What a step spends its time on."""
MESSAGES = {
    "all-reduce": (N_("all-reduce, NCCL or its like"), N_("all-reduce, the engine's own kernel")),
    "experts": (N_("tokens to the experts of other ranks and back"),),
    "stage": (N_("to the next stage"),),
}
"""What a message is; of all-reduces who does them."""
STATES = (N_("met"), N_("missed"), N_("ok"), N_("infeasible"), N_("finished"), N_("rejected"), N_("unfinished"))
KINDS = (*(N_("datasheet"), N_("quoted"), N_("measured"), N_("computed"), N_("fitted"), N_("assumed"), N_("recalled")),)
"""Of sourced values."""
PAID = (N_("at delivery"), N_("in service"), N_("switched on"), N_("metered"), N_("at the end"))
OWNER = (N_("network and storage"), N_("failures"))
"""What a bill may leave out, with components."""
NOTHING = (N_("nothing"), N_("a list"), N_("a mapping"))
"""What an error calls a value."""
COUNTED = (N_("searches"), N_("hybrids"), N_("cases"))
"""What progress counts."""
FITS = (N_("fits at {names}"), N_("fits at {names}, or {other}"), N_("fits on {other}"))
"""What helps where a model does not fit."""
POLICIES = (N_("round robin"), N_("least outstanding"), N_("power of two"), N_("random"), N_("by length"))
INPUTS = (
    *(N_("electricity"), N_("hosting"), N_("rent of a rack"), N_("discount rate"), N_("life"), N_("residual value")),
    N_("load"),
    *(N_("memory bandwidth"), N_("compute"), N_("memory size"), N_("link"), N_("power"), N_("utilisation")),
    *(N_("years"), N_("per year"), N_("of the price"), N_("of today's")),
)
"""What sensitivity and breakeven move, and its units."""
UNITS = (N_("image"), N_("sample"), N_("sequence"), N_("utterance"), N_("volume"), N_("query"), N_("unit"))
"""Of services that answer in one pass."""


def names_of(scenario: ReportingFleets) -> Iterator[str]:
    """What *scenario* calls its fleets, and what `breakeven` calls the ways to pay for them."""
    ways = scenario.breakeven.also if isinstance(scenario, Scenario) and scenario.breakeven else {}
    for fleet in scenario.fleets:
        name = str(getattr(fleet, "name", ""))
        yield from (name, *(f"{name} {way}" for way in (*OWN_WAY.values(), *ways.get(name, ()))))


def name_told(name: str) -> str:
    """`gpu_capital` as people read it: GPU capital."""
    return _(name.replace("_", " ").replace("gpu", "GPU").replace("usd", "USD"))
