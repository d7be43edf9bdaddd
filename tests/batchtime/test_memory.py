"""Least memory of a batch, counted by hand."""

import pytest

from sim.batchtime.memory import BatchMemory
from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Value

CATALOG = load_catalog()


def value(number: float) -> Value:
    return Value(value=number, source="test", kind="computed")


def service(params: float | None, tables: float | None, widest: float | None, name: str = "resnet-50") -> OtherModel:
    model = CATALOG.any_model(name)
    assert isinstance(model, OtherModel)
    sizes = {"params": params, "table_elements": tables, "widest_elements_per_sample": widest}
    return model.model_copy(update={key: None if size is None else value(size) for key, size in sizes.items()})


def test_weights_of_each_instance_one_table_and_the_widest_layer_of_each_sample() -> None:
    # 2 bytes a number: a table of 50, two instances of 100 weights, 3 samples of 10 numbers in each request
    found = BatchMemory.of(service(100, 50, 10), "fp16", instances=2, samples_per_request=3)
    assert (found.fixed_bytes, found.request_bytes) == (50 * 2 + 2 * 100 * 2, 3 * 10 * 2)
    assert found.needed_bytes(5) == 500 + 2 * 5 * 60
    assert [found.largest_batch(memory) for memory in (1100, 1099, 620, 619, 500, 100)] == [5, 4, 1, 0, 0, 0]


def test_sizes_that_are_not_known_count_nothing() -> None:
    found = BatchMemory.of(service(None, None, None), "int8", instances=3)
    assert (found.fixed_bytes, found.request_bytes) == (0, 0)
    assert (found.largest_batch(0), found.largest_batch(-1)) == (1, 0)


def test_a_stated_table_replaces_the_models_own() -> None:
    assert BatchMemory.of(service(100, 50, 10), "int8", 1, table_bytes=7).fixed_bytes == 107
    assert BatchMemory.of(service(100, 50, 10), "int8", 1).request_bytes == 10


@pytest.mark.parametrize(("resolution", "area"), [(None, 1), (1024, 1), (2048, 4), (512, 0.25)])
def test_an_image_needs_memory_by_its_area(resolution: int | None, area: float) -> None:
    image = service(1, None, 8, "sdxl-base")
    assert BatchMemory.of(image, "fp16", 1, resolution=resolution).request_bytes == area * 16
    # what is no generator of images has no resolution
    assert BatchMemory.of(service(1, None, 8), "fp16", 1, resolution=resolution).request_bytes == 16
