from pathlib import Path

import pytest
from pydantic import ValidationError

from sim.catalogue.catalog import load_catalog
from sim.steptime.coefficients import StepTimeCoefficients
from sim.yamlio import read

DATA = Path(__file__).parents[2] / "data"


def catalogue_ids(kind):
    return {path.stem for path in (DATA / kind).glob("*.yaml")}


def test_every_gpu_and_link_that_is_named_exists(coefficients):
    rules = coefficients.allreduce_time_factors
    assert set(coefficients.gpus) | {gpu for rule in rules for gpu in rule.gpus} <= catalogue_ids("gpus")
    assert {link for rule in rules for link in rule.links} <= catalogue_ids("links")


def test_every_architecture_of_the_catalogue_is_named(coefficients):
    cards = [load_catalog().gpu(name) for name in catalogue_ids("gpus")]
    assert {card.architecture for card in cards} <= set(coefficients.architectures)
    assert {card.architecture for card in cards if card.geforce} <= set(coefficients.geforce)


def test_nothing_beats_the_datasheet(coefficients):
    entries = [*coefficients.gpus.values(), *coefficients.architectures.values(), *coefficients.geforce.values()]
    assert all(0 < value.value <= 1 for entry in entries for value in (entry.compute, entry.memory))


def test_the_nearest_statement_counts(coefficients, gpu, link):
    assert coefficients.efficiency(gpu("rtx-4090")) == coefficients.gpus["rtx-4090"]
    assert coefficients.efficiency(gpu("rtx-a5000")) == coefficients.architectures["Ampere"]
    assert coefficients.efficiency(gpu("rtx-3080-10gb")) == coefficients.geforce["Ampere"]
    rules = coefficients.allreduce_time_factors
    of_l40s = next(rule for rule in rules if rule.gpus == ("l40s",))
    assert coefficients.allreduce_factor(gpu("l40s"), link("pcie4-x16")) == of_l40s.factor
    assert coefficients.allreduce_factor(gpu("a10"), link("pcie4-x16")) == rules[-1].factor
    bridged = coefficients.allreduce_factor(gpu("rtx-3090"), link("nvlink-bridge-ga102"))
    assert bridged == coefficients.allreduce_factor(gpu("h100-80gb-sxm"), link("nvlink4-nvswitch"))


def test_the_last_rule_must_be_general():
    data = {**read(DATA / "steptime.yaml").data, "attention": read(DATA / "attention.yaml").data}
    data["allreduce_time_factors"].pop()
    with pytest.raises(ValidationError, match="must name no link and no GPU"):
        StepTimeCoefficients.model_validate(data)


def test_grouped_products_take_the_factor_of_the_longest_beginning_of_the_architecture(coefficients, gpu):
    plain = coefficients.gemm_exponent
    workstation = plain.model_copy(update={"value": 0.8})
    listed = {"Blackwell": plain, "Blackwell (GB20x)": workstation}
    changed = coefficients.model_copy(update={"experts_time_factors": listed})
    assert changed.experts_factor(gpu("rtx-5090")) is workstation
    assert changed.experts_factor(gpu("b200-180gb-sxm")) is plain
    assert changed.experts_factor(gpu("h100-80gb-sxm")) is None
