"""One component of the bill."""

from math import fsum

from sim.scenario.claims.figures import LedgerLine
from sim.scenario.reading.errors import did_you_mean
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.registry import finds
from sim.study.claims.kinds.run import simulated
from sim.study.metrics.statistics import half_width, mean


@finds(LedgerLine)
def ledger(spec: LedgerLine, asked: Asked) -> Figure:
    """USD per hour of the window, mean over replications."""
    samples = []
    for case in simulated(spec.fleet, spec.set, asked)[1]:
        if case.status != "ok":
            raise NoFigure(f"{spec.fleet}: {case.reason}")
        rows = case.costs().to_pylist()
        known = dict.fromkeys(row["component"] for row in rows)
        if spec.component not in known:
            raise NoFigure(f"the bill has no component {spec.component!r}{did_you_mean(spec.component, known)}")
        usd = fsum(row["amount_usd"] for row in rows if row["component"] == spec.component)
        samples.append(usd / case.metrics.machines.window_h)
    half = half_width(samples)
    return Figure(mean(samples), half, tuple(samples) if half is not None else ())
