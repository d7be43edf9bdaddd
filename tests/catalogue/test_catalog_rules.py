"""Rules of data/ that hold for some engines, cards or formats name such that exist: a misspelt one holds nowhere."""

from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.engine import Engine
from sim.catalogue.gpu import Gpu
from sim.spec import Spec
from sim.steptime.coefficients import StepTimeCoefficients, load_coefficients

CATALOG = load_catalog()


@cache
def gpus() -> dict[str, Gpu]:
    return {name: CATALOG.gpu(name) for name in CATALOG.ids("gpus")}


@cache
def engines() -> list[Engine]:
    return [CATALOG.engine(name) for name in CATALOG.ids("engines")]


@cache
def coefficients() -> StepTimeCoefficients:
    return load_coefficients(CATALOG.root / "steptime.yaml")


@cache
def known() -> dict[str, list[str]]:
    """Return the names that a rule may hold for, by the key that states them."""
    names = {key: key for key in ("engines", "gpus", "links", "quantizations")} | {"kernel": "kernels"}
    architectures = {"architectures": sorted({gpu.architecture for gpu in gpus().values()})}
    return {key: CATALOG.ids(kind) for key, kind in names.items()} | architectures


def named(spec: object) -> Iterator[tuple[str, str]]:
    """(kind of thing, beginning of its name) that rules inside *spec* hold for."""
    if isinstance(spec, dict):
        yield from (pair for one in spec.values() for pair in named(one))
    elif isinstance(spec, tuple | list):
        yield from (pair for one in spec for pair in named(one))
    elif isinstance(spec, Spec):
        for field in type(spec).model_fields:
            value = getattr(spec, field)
            if field == "kernel" and isinstance(value, str):
                yield field, value
            elif field in known() and isinstance(value, tuple):
                yield from ((field, one) for one in value)
            else:
                yield from named(value)


@pytest.mark.slow
def test_what_a_rule_names_exists() -> None:
    for spec in (*engines(), coefficients()):
        for kind, name in named(spec):
            assert any(one.startswith(name) for one in known()[kind]), f"no {kind} begin with {name!r}"


def test_tables_by_architecture_name_architectures() -> None:
    stated = coefficients().attention
    for table in (stated.small_heads, stated.sparse_kernel_heads, coefficients().experts_time_factors):
        for name in table:
            assert any(one.startswith(name) for one in known()["architectures"]), name


def test_tuned_tiles_are_of_cards_that_default_tiles_are_slow_on() -> None:
    found = [chain([one.overheads.default_tiles if one.overheads else None], (c.default_tiles for c in one.changed))
             for one in engines()]  # fmt: skip
    tiles = [one for some in found for one in some if one is not None]
    assert len(tiles) > 3
    for one in tiles:
        assert set(one.architectures) <= set(known()["architectures"])
        for name in chain.from_iterable(tuned.gpus for tuned in one.tuned):
            assert all(gpu.architecture in one.architectures for key, gpu in gpus().items() if key.startswith(name)), (
                name
            )
