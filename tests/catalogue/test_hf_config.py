"""Hugging Face configs give the same model as the catalogue, or one clear error."""

import json
from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.hf_config.load import model_from_config
from sim.catalogue.model import params_total
from sim.catalogue.quantization import native_quantization

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama3.1-8b": LLAMA,
    "qwen2-72b-instruct": LLAMA
    | {"model_type": "qwen2", "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80}
    | {"num_attention_heads": 64, "vocab_size": 152064, "max_position_embeddings": 32768}
    | {"sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 80},
    "qwen3-30b-a3b": LLAMA
    | {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48}
    | {"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960}
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "mixtral-8x7b": LLAMA
    | {"model_type": "mixtral", "vocab_size": 32000, "max_position_embeddings": 32768}
    | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "mistral-7b": LLAMA
    | {"model_type": "mistral", "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096},
    "gemma2-9b": LLAMA
    | {"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16}
    | {"head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192, "sliding_window": 4096},
    "gpt-oss-20b": LLAMA
    | {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24}
    | {"num_attention_heads": 64, "head_dim": 64, "vocab_size": 201088, "num_local_experts": 32}
    | {"num_experts_per_tok": 4, "attention_bias": True, "sliding_window": 128}
    | {"layer_types": ["sliding_attention", "full_attention"] * 12, "quantization_config": {"quant_method": "mxfp4"}},
    "deepseek-v3": LLAMA
    | {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61}
    | {"num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280}
    | {"max_position_embeddings": 163840, "n_routed_experts": 256, "num_experts_per_tok": 8}
    | {"moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536}
    | {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
    "opt-125m": {
        "model_type": "opt",
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
    },
    "falcon-40b": {
        "model_type": "falcon",
        "hidden_size": 8192,
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
        "vocab_size": 65024,
        "torch_dtype": "bfloat16",
    },
}
V3 = CONFIGS["deepseek-v3"]
QWEN35 = LLAMA | {"model_type": "qwen3_5_moe_text", "vocab_size": 248320, "max_position_embeddings": 262144}
CONFIGS |= {
    "deepseek-v3.2": V3 | {"model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64},
    "glm-5.2": V3
    | {"model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78}
    | {"num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 154880, "q_lora_rank": 2048}
    | {"qk_nope_head_dim": 192, "v_head_dim": 256, "head_dim": 192, "max_position_embeddings": 1048576}
    | {"index_topk": 2048, "index_n_heads": 32, "indexer_types": ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18}
    | {"quantization_config": None},
    "kimi-k2.6": V3
    | {"model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384}
    | {"first_k_dense_replace": 1, "vocab_size": 163840, "max_position_embeddings": 262144}
    | {
        "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"]}
        | {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}
    },
    "kimi-k3": V3
    | {"model_type": "kimi_linear", "intermediate_size": 33792, "num_hidden_layers": 93, "num_attention_heads": 96}
    | {"num_key_value_heads": 96, "vocab_size": 163840, "max_position_embeddings": 1048576, "num_experts": 896}
    | {"num_experts_per_token": 16, "moe_intermediate_size": 3072, "num_shared_experts": 2, "first_k_dense_replace": 1}
    | {"routed_expert_hidden_size": 3584, "mla_use_output_gate": True}
    | {"quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}}
    | {
        "linear_attn_config": {"kda_layers": list(range(69)), "num_heads": 96, "head_dim": 128}
        | {"short_conv_kernel_size": 4, "use_full_rank_gate": True}
    },
    "deepseek-v4-flash": LLAMA
    | {"model_type": "deepseek_v4", "hidden_size": 4096, "intermediate_size": None, "num_hidden_layers": 43}
    | {"num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "vocab_size": 129280, "hc_mult": 4}
    | {"max_position_embeddings": 1048576, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6}
    | {"moe_intermediate_size": 2048, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512}
    | {"q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "sliding_window": 128, "expert_dtype": "fp4"}
    | {"compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "quantization_config": {"quant_method": "fp8"}},
    "deepseek-v4.1-flash": {"model_type": "deepseek_v41"}
    | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32], "expert_dtype": "fp4"}}
    | {
        "text_config": {"model_type": "deepseek_v41_text", "hidden_size": 5120, "num_hidden_layers": 40}
        | {"num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "vocab_size": 129280, "hc_mult": 4}
        | {"max_position_embeddings": 1048576, "n_routed_experts": 384, "n_shared_experts": 1, "hidden_act": "silu"}
        | {"num_experts_per_tok": 6, "moe_intermediate_size": 2304, "q_lora_rank": 1280, "o_lora_rank": 1024}
        | {"o_groups": 8, "sliding_window": 128, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 512}
        | {"compress_ratios": [0] * 2 + [2] * 18 + [1] * 20 + [0] * 3, "kv_source_layer_ids": [2, 8, 14, 20]}
        | {"index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36], "engram_layer_ids": [1, 14]}
        | {"engram_num_embeddings": [384006168, 384016682], "engram_max_ngram_size": 4, "engram_n_heads": 8}
        | {"engram_head_dim": 256}
    },
    "mistral-small-4": V3
    | {"model_type": "mistral4", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36}
    | {"num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 131072, "n_routed_experts": 128}
    | {"num_experts_per_tok": 4, "first_k_dense_replace": 0, "q_lora_rank": 1024, "kv_lora_rank": 256}
    | {"qk_nope_head_dim": 64, "max_position_embeddings": 1048576, "quantization_config": None},
    "ministral3-8b": LLAMA
    | {"model_type": "ministral3", "num_hidden_layers": 34, "vocab_size": 131072, "max_position_embeddings": 262144},
    "minimax-m3": LLAMA
    | {"model_type": "minimax_m3", "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288}
    | {"num_hidden_layers": 60, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128}
    | {"vocab_size": 200064, "max_position_embeddings": 1048576, "use_qk_norm": True, "num_local_experts": 128}
    | {"num_experts_per_tok": 4, "moe_intermediate_size": 3072, "n_shared_experts": 1, "first_k_dense_replace": 3}
    | {
        "sparse_attention_config": {"use_sparse_attention": True, "sparse_attention_freq": [0] * 3 + [1] * 57}
        | {"sparse_block_size": 128, "sparse_topk_blocks": 16, "sparse_num_index_heads": 4, "sparse_index_dim": 128}
    },
    "qwen3.6-35b-a3b": QWEN35
    | {"hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2}
    | {"intermediate_size": None, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32}
    | {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "num_experts": 256}
    | {"num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
    "gemma4-26b-a4b": LLAMA
    | {"model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30}
    | {"num_attention_heads": 16, "head_dim": 256, "vocab_size": 262144, "max_position_embeddings": 262144}
    | {"sliding_window": 1024, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5}
    | {"num_global_key_value_heads": 2, "global_head_dim": 512, "attention_k_eq_v": True}
    | {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
    "gemma4-e2b": LLAMA
    | {"model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35}
    | {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144}
    | {"max_position_embeddings": 131072, "sliding_window": 512, "use_double_wide_mlp": True}
    | {"layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "global_head_dim": 512}
    | {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20, "num_global_key_value_heads": None},
}
NAMES = {
    "id", "name", "aliases", "hf_id", "family", "dimensions", "params_quoted", "params_active_quoted",
    "published_nvfp4",
}  # fmt: skip


def write(folder: Path, keys: object) -> Path:
    path = folder / "config.json"
    path.write_text(keys if isinstance(keys, str) else json.dumps(keys))
    return path


@pytest.mark.parametrize("model_id", CONFIGS)
def test_config_gives_the_model_of_the_catalogue(model_id: str, tmp_path: Path) -> None:
    model = model_from_config(write(tmp_path, CONFIGS[model_id]))
    known = load_catalog().model(model_id)
    assert model.model_dump(exclude=NAMES) == known.model_dump(exclude=NAMES)
    assert params_total(model) == params_total(known)
    assert (model.dimensions.source, model.dimensions.kind) == ("hf_config", "quoted")


BLOCKS = {"mlp_layer_types": ["dense"] + ["sparse"] * 92}
RESAVED: dict[str, dict[str, Any]] = {
    # changes by transformers 5.23; None: the key is gone
    "qwen3-30b-a3b": {"num_experts": None, "num_local_experts": 128},
    "kimi-k3": {"linear_attn_config": None, "first_k_dense_replace": None, "max_position_embeddings": None}
    | {"model_max_length": 1048576, "linear_num_heads": 96, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
    | {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 23 + ["full_attention"]}
    | BLOCKS,
    "deepseek-v4-flash": {"compress_ratios": None}
    | {"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}}
    | {
        "layer_types": ["sliding_attention"] * 2
        + ["compressed_sparse_attention", "heavily_compressed_attention"] * 20
        + ["compressed_sparse_attention"]
    },
    "minimax-m3": {"model_type": "minimax_m3_vl_text", "sparse_attention_config": None, "use_qk_norm": None}
    | {"n_shared_experts": None, "first_k_dense_replace": None, "shared_intermediate_size": 3072}
    | {"index_n_heads": 4, "index_head_dim": 128, "index_block_size": 128, "index_topk_blocks": 16}
    | {"layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57}
    | {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 57},
}


@pytest.mark.parametrize("model_id", RESAVED)
def test_a_config_that_transformers_saved_again_is_the_same_model(model_id: str, tmp_path: Path) -> None:
    again = {key: value for key, value in (CONFIGS[model_id] | RESAVED[model_id]).items() if value is not None}
    model, known = model_from_config(write(tmp_path, again)), load_catalog().model(model_id)
    if model_id == "kimi-k3":  # the config does not state whether its gate has full rank
        assert model.linear_attention is not None
        wide = model.linear_attention.model_copy(update={"low_rank_gate": False})
        model = model.model_copy(update={"linear_attention": wide, "attention_output_gate": True})
    assert model.model_dump(exclude=NAMES) == known.model_dump(exclude=NAMES)


def test_the_gate_of_shared_experts_is_one_column_a_layer() -> None:
    model = load_catalog().model("qwen3.5-397b-a17b")
    assert model.moe is not None
    ungated = model.model_copy(update={"moe": model.moe.model_copy(update={"shared_expert_gate": False})})
    assert params_total(model) - params_total(ungated) == 60 * 4096


MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
QUARK, FP4 = {"quant_method": "quark"}, {"dtype": "fp4", "group_size": 32}
W4A16, FP8 = {"quant_algo": "W4A16_NVFP4", "group_size": 16}, {"quant_algo": "FP8"}


@pytest.mark.parametrize(
    ("stored", "native"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq-int4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "int4-g32"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq-int8"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.0.self_attn*"]}, "nvfp4-mlp"),
        (
            MIXED | {"quantized_layers": {"model.layers.0.mlp.up_proj": W4A16, "model.layers.0.self_attn.q_proj": FP8}},
            "nvfp4-w4a16",
        ),
        (MIXED | {"quantized_layers": {"model.layers.0.mlp.up_proj": W4A16}}, "modelopt"),
        (
            {"quant_method": "compressed-tensors"}
            | {
                "config_groups": {
                    "0": {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"type": "int"}}
                }
            },
            "int8-w8a8",
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4-wo"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "gptq, 3 bits in groups of 128"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq, 4 bits in groups of 64"),
        ({"bits": 4, "group_size": 64, "mode": "affine", "model.layers.0.mlp.gate": {"bits": 8}}, "mlx-4bit"),
        ({"bits": 8, "group_size": 64, "lm_head": {"bits": 8}, "model.embed_tokens": False}, "mlx-8bit"),
        ({"bits": 4, "group_size": 32, "mode": "mxfp4"}, "MLX's mxfp4, 4 bits in groups of 32"),
        (
            {"bits": 4, "group_size": 64, "model.layers.0.mlp.down_proj": {"bits": 6}},
            "MLX's affine, 4 bits in groups of 64, mixed",
        ),
        ({"producer": "somebody"}, "a quantization_config without quant_method"),
        (QUARK | {"global_quant_config": {"weight": FP4, "input_tensors": FP4}}, "mxfp4-linear"),
        (QUARK | {"global_quant_config": {"weight": FP4}, "exclude": ["*self_attn*"]}, "quark"),
        (QUARK | {"global_quant_config": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": {}}}, "quark"),
        (
            QUARK | {"global_quant_config": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": {"dtype": "fp8_e4m3"}}},
            "fp8",
        ),
    ],
)
def test_stored_weights_keep_their_format(stored: dict[str, Any], native: str, tmp_path: Path) -> None:
    model = model_from_config(write(tmp_path, LLAMA | {"quantization_config": stored}))
    assert (model.native_dtype, model.native_quantization) == ("bfloat16", native)
    catalog = load_catalog()
    if native in catalog.ids("quantizations"):
        assert native_quantization(catalog.quantization("none"), model, catalog.quantization).id == native
    else:
        with pytest.raises(UnknownId, match=native):
            native_quantization(catalog.quantization("none"), model, catalog.quantization)


@pytest.mark.parametrize(
    ("model_id", "changes", "dense"),
    [
        ("qwen3-30b-a3b", {"decoder_sparse_step": 1, "mlp_only_layers": [0, 47]}, 2),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2, "mlp_only_layers": [1]}, 25),
        ("qwen3.6-35b-a3b", {"mlp_only_layers": [3]}, 1),
        ("deepseek-v3", {"moe_layer_freq": 1}, 3),
        ("deepseek-v3", {"moe_layer_freq": 2}, 3 + 29),
    ],
)
def test_layers_without_experts_between_those_that_have_them(
    model_id: str, changes: dict[str, Any], dense: int, tmp_path: Path
) -> None:
    """Qwen3: layers listed, and those whose number from 1 the step does not divide; DeepSeek: from 0."""
    moe = model_from_config(write(tmp_path, CONFIGS[model_id] | changes)).moe
    assert moe is not None
    assert moe.dense_layers == dense


def test_experts_of_amd_in_mxfp4(tmp_path: Path) -> None:
    stored = QUARK | {"global_quant_config": {"weight": FP4, "input_tensors": FP4}, "exclude": ["re:.*self_attn.*"]}
    model = model_from_config(write(tmp_path, CONFIGS["qwen3-30b-a3b"] | {"quantization_config": stored}))
    assert model.native_quantization == "mxfp4"


def test_mlx_format_has_a_separate_key(tmp_path: Path) -> None:
    stored = {"quantization": {"group_size": 64, "bits": 4}}
    assert model_from_config(write(tmp_path, LLAMA | stored)).native_quantization == "mlx-4bit"


def test_format_may_be_in_a_separate_file(tmp_path: Path) -> None:
    written = {
        "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.0.self_attn.q_proj"]}
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(written))
    assert model_from_config(write(tmp_path, CONFIGS["qwen3-30b-a3b"])).native_quantization == "nvfp4-experts"


def test_folder_and_nested_text_config_are_read(tmp_path: Path) -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "torch_dtype"} | {"model_type": "gemma3_text"}
    write(tmp_path, {"model_type": "gemma3", "text_config": inner | {"sliding_window": 1024}})
    model = model_from_config(tmp_path)
    assert (model.sliding_window, model.sliding_window_layers, model.qk_norm) == (1024, 27, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_source_layer_ids", None),
        ("kv_source_layer_ids", [2, 8, 14]),  # nothing stores what the last 20 layers read
        ("kv_source_layer_ids", [8, 14, 20]),
        ("kv_source_layer_ids", [2, 8, 14, 20, 99]),
        ("kv_source_layer_ids", [2, 2, 8, 20]),
        ("index_source_layer_ids", [1, 2, 20]),
        ("index_source_layer_ids", ["2", 20]),
        ("engram_num_embeddings", [384006168, -1]),
        ("engram_max_ngram_size", 1),
    ],
)
def test_entries_without_their_source_are_refused(key: str, value: object, tmp_path: Path) -> None:
    config = CONFIGS["deepseek-v4.1-flash"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"text_config": config["text_config"] | {key: value}}))
    with pytest.raises(ConfigError, match=f"config.json: {key}: "):
        model_from_config(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "model_type: missing"),
        (
            {"model_type": "qwen3moe"},
            "model_type: the architecture 'qwen3moe' is not supported; did you mean qwen3_moe",
        ),
        ({key: value for key, value in LLAMA.items() if key != "vocab_size"}, "vocab_size: missing"),
        (LLAMA | {"num_key_value_heads": 7}, "num_key_value_heads: 7 does not divide"),
        (LLAMA | {"num_attention_heads": 33, "num_key_value_heads": 11}, "num_attention_heads: 33 does not divide"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size: a positive whole number is needed, not '4096'"),
        (LLAMA | {"num_key_value_heads": -8}, "num_key_value_heads: "),
        (
            LLAMA | {"model_type": "deepseek_v4", "compress_ratios": [8] * 32},
            "compress_ratios: attention to a compressed context in another form",
        ),
        (
            {"model_type": "kimi_linear", "linear_attn_config": {"short_conv_kernel_size": 5}},
            "of a width other than 4 cannot be",
        ),
        (
            {"model_type": "nemotron_h", "layers_block_type": ["mamba", "rwkv"]},
            "layers_block_type: a stack of blocks other than Mamba-2",
        ),
        (LLAMA | {"model_type": "gemma3n_text", "hidden_size_per_layer_input": 256}, "an embedding for every layer"),
        ([1, 2], "not a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_bad_config_is_one_clear_error(keys: object, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, keys)
    with pytest.raises(ConfigError) as caught:
        model_from_config(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        model_from_config(tmp_path / "none.json")
