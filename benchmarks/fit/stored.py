"""Parameters from the fitted figures in data/, from which a new fit can start."""

from collections.abc import Callable, Mapping
from math import log
from pathlib import Path

from parameters import (
    COEFFICIENTS,
    EFFICIENCIES,
    EXPERTS,
    EXPERTS_IN,
    FAMILIES,
    KERNELS,
    LAUNCHES,
    OVERHEADS,
    SHARED_KERNELS,
    SHARED_LAUNCHES,
    SHARED_OVERHEADS,
    Priors,
)

from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import family_of
from sim.catalogue.value import Value
from sim.steptime.coefficients import StepTimeCoefficients, load_coefficients

Figure = Callable[[str], float]


def stored(priors: Priors, data: Path) -> dict[str, float]:
    """Return theta of every parameter in *priors*, from the figures under *data*.

    The common part of pooled eras is in the figures of each of them, so the theta of the common parameter is 0.
    """
    places = _places(priors, Catalog(data), load_coefficients(data / "steptime.yaml"))
    theta = {}
    for name, before in priors.values.items():
        what, _, owner = name.partition(":")
        factor = log(places[what](owner) / before)
        theta[name] = -factor if what in EFFICIENCIES else factor
    return theta


def _places(priors: Priors, catalog: Catalog, coefficients: StepTimeCoefficients) -> dict[str, Figure]:
    """Return the place of the figure of each kind of parameter, by its owner."""
    engines = {name.partition(":")[2] for name in priors.values if name.startswith("per_layer:")}
    kernels = {name.partition(":")[2] for name in priors.values if name.startswith("kernel_compute:")}
    of_family = {family_of(engine): engine for engine in engines}
    any_engine, any_kernel = min(engines), min(kernels)
    launching = [name.partition(":")[2] for name in priors.values if name.partition(":")[0] in LAUNCHES]

    def overhead(field: str, engine: Callable[[str], str]) -> Figure:
        return lambda owner: getattr(catalog.engine(engine(owner)).overheads, field).value

    def kernel(field: str, id_of: Callable[[str], str]) -> Figure:
        return lambda owner: getattr(catalog.kernel(id_of(owner)), field).value

    def experts_in(owner: str) -> float:
        engine, _, kernel = owner.partition("/")
        return _listed(catalog.engine(engine).overheads.experts_by_kernel, kernel)

    def own(owner: str) -> str:
        return owner

    return (
        {what: overhead(field, own) for what, field in OVERHEADS.items()}
        | {what: overhead(field, lambda _: any_engine) for what, field in SHARED_OVERHEADS.items()}
        | {what: overhead(field, own) for what, field in LAUNCHES.items()}
        | {what: overhead(field, lambda _: launching[0]) for what, field in SHARED_LAUNCHES.items()}
        | {what: overhead(field, of_family.__getitem__) for what, field in FAMILIES.items()}
        | {what: kernel(field, own) for what, field in KERNELS.items()}
        | {what: kernel(field, lambda _: any_kernel) for what, field in SHARED_KERNELS.items()}
        | {what: (lambda _, field=field: getattr(coefficients, field).value) for what, field in COEFFICIENTS.items()}
        | {
            "compute": lambda gpu: coefficients.efficiency(catalog.gpu(gpu)).compute.value,
            "memory": lambda gpu: coefficients.efficiency(catalog.gpu(gpu)).memory.value,
            "allreduce": lambda rule: coefficients.allreduce_time_factors[int(rule)].factor.value,
        }
        | {EXPERTS_IN: experts_in}
        | {
            what: (lambda owner, field=field: _listed(getattr(coefficients, field), owner))
            for what, field in EXPERTS.items()
        }
    )


def _listed(table: Mapping[str, Value], owner: str) -> float:
    """Return the value of *owner* in *table*; 1 if it has none."""
    return table[owner].value if owner in table else 1.0
