"""Every model of the catalogue against the parameter counts that its makers quote."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sim import yamlio
from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import AnyModel, Model, OtherModel, kv_bytes_per_token, params_active, params_total

MODELS = sorted((Path(__file__).resolve().parents[2] / "data" / "models").glob("*.yaml"))
READER: TypeAdapter[AnyModel] = TypeAdapter(AnyModel)
TOTAL_TOLERANCE = 0.0085
ROUND_NAME_TOLERANCE = 0.035
ACTIVE_TOLERANCE = 0.02
"""Computed against quoted; "20B" in a name may stand for 20.6e9."""


def read(path: Path) -> Model | OtherModel:
    return READER.validate_python(yamlio.read(path).data)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_model_reads_and_counts_what_is_quoted(path: Path) -> None:
    model = read(path)
    assert model.id == path.stem
    if isinstance(model, OtherModel):
        return
    quoted, active = model.params_quoted, model.params_active_quoted
    if quoted is not None:
        tolerance = ROUND_NAME_TOLERANCE if "name" in quoted.where else TOTAL_TOLERANCE
        assert params_total(model) == pytest.approx(quoted.value, rel=tolerance)
    if active is not None:
        counted = params_active(model)
        if model.native_dtype == "mxfp4":
            counted -= model.vocab * model.hidden  # OpenAI leaves the input embedding out
        assert counted == pytest.approx(active.value, rel=ACTIVE_TOLERANCE)


@pytest.mark.slow
def test_no_name_refers_to_two_models() -> None:
    owner: dict[str, str] = {}
    for model in map(read, MODELS):
        for name in {model.id.lower(), *(alias.lower() for alias in model.aliases)}:
            assert owner.setdefault(name, model.id) == model.id, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_id", "params", "kv_bytes"),
    [
        ("qwen2-72b-instruct", 72_706_203_648, 327_680),
        ("llama3.1-8b", 8_030_261_248, 131_072),
        ("qwen3-30b-a3b", 30_532_122_624, 98_304),
        ("gemma2-9b", 9_241_705_984, 344_064),
        ("gpt-neox-20b", 20_554_567_680, 1_081_344),
        ("falcon-40b", 41_303_293_952, 122_880),
        ("opt-125m", 125_239_296, 36_864),
    ],
)
def test_parameters_and_kv_bytes_are_exact(model_id: str, params: int, kv_bytes: int) -> None:
    model = next(model for model in map(read, MODELS) if model.id == model_id)
    assert isinstance(model, Model)
    assert (params_total(model), kv_bytes_per_token(model)) == (params, kv_bytes)


def test_latent_attention_keeps_576_numbers_a_layer() -> None:
    model = next(model for model in map(read, MODELS) if model.id == "deepseek-v3")
    assert isinstance(model, Model)
    assert kv_bytes_per_token(model) == 2 * 576 * 61


def test_layers_that_share_a_cache_store_nothing_and_are_read() -> None:
    small = load_catalog().model("gemma4-e2b")
    alone = small.model_copy(update={"shared_caches": None})
    assert (small.cached_layers, small.stored_layers, small.stored_window_layers) == (35, 15, 12)
    assert kv_bytes_per_token(small) == 12 * 2 * 2 * 256 + 3 * 2 * 2 * 512
    assert kv_bytes_per_token(alone) == 28 * 2 * 2 * 256 + 7 * 2 * 2 * 512
    missing = 20 * 3 * 1536 * 6144 - (16 * 2 * 256 + 4 * 2 * 512) * 1536  # wider blocks, no keys and values
    assert params_total(small) - params_total(alone) == missing


def test_lookup_tables_are_stored_and_not_multiplied() -> None:
    large = load_catalog().model("qwen3.8-flash-next")
    plain = large.model_copy(update={"ngram_embedding": None})
    assert params_total(large) - params_total(plain) == 320_000_000 * 160
    assert params_active(large) == params_active(plain)
    assert params_active(load_catalog().model("gemma4-e2b")) == pytest.approx(2.3e9, rel=0.01)  # "effective 2B"
