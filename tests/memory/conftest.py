"""Fixtures of the memory tests: a shared catalogue, and `fit` by ids."""

from collections.abc import Callable
from typing import Any

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.quantization import native_quantization
from sim.memory.fit import MemoryFit, fit

Fit = Callable[..., MemoryFit]


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def fit_ids(catalog: Catalog) -> Fit:
    def by_ids(gpu: str, model: str, quantization: str, engine: str = "vllm-0.11", **settings: Any) -> MemoryFit:
        dims = catalog.model(model)
        weights = native_quantization(catalog.quantization(quantization), dims, catalog.quantization)
        return fit(catalog.gpu(gpu), dims, weights, catalog.engine(engine), **settings)

    return by_ids
