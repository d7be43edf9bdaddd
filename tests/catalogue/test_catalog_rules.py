"""Rules of data/ that hold for some engines, cards or formats name such that exist: a misspelt one holds nowhere."""

from collections.abc import Iterator
from itertools import chain

import pytest

from sim.catalogue.catalog import load_catalog
from sim.spec import Spec
from sim.steptime.coefficients import load_coefficients

CATALOG = load_catalog()
GPUS = {name: CATALOG.gpu(name) for name in CATALOG.ids("gpus")}
KNOWN = {
    "engines": CATALOG.ids("engines"),
    "gpus": list(GPUS),
    "links": CATALOG.ids("links"),
    "kernel": CATALOG.ids("kernels"),
    "architectures": sorted({gpu.architecture for gpu in GPUS.values()}),
}
ENGINES = {name: CATALOG.engine(name) for name in KNOWN["engines"]}
COEFFICIENTS = load_coefficients(CATALOG.root / "steptime.yaml")


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
            elif field in KNOWN and isinstance(value, tuple):
                yield from ((field, one) for one in value)
            else:
                yield from named(value)


@pytest.mark.parametrize("spec", [*ENGINES.values(), COEFFICIENTS], ids=lambda one: getattr(one, "id", "steptime"))
def test_what_a_rule_names_exists(spec: Spec) -> None:
    for kind, name in named(spec):
        assert any(one.startswith(name) for one in KNOWN[kind]), f"no {kind} begin with {name!r}"


def test_tables_by_architecture_name_architectures() -> None:
    stated = COEFFICIENTS.attention
    for table in (stated.small_heads, stated.sparse_kernel_heads, COEFFICIENTS.experts_time_factors):
        for name in table:
            assert any(one.startswith(name) for one in KNOWN["architectures"]), name


def test_tuned_tiles_are_of_cards_that_default_tiles_are_slow_on() -> None:
    found = [chain([one.overheads.default_tiles if one.overheads else None], (c.default_tiles for c in one.changed))
             for one in ENGINES.values()]  # fmt: skip
    tiles = [one for some in found for one in some if one is not None]
    assert len(tiles) > 3
    for one in tiles:
        assert set(one.architectures) <= set(KNOWN["architectures"])
        for name in chain.from_iterable(tuned.gpus for tuned in one.tuned):
            assert all(gpu.architecture in one.architectures for key, gpu in GPUS.items() if key.startswith(name)), name
