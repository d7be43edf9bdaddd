"""Configs of 2025 and 2026 against the parameters that their makers name, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.hf_config.load import REFUSED, model_from_config
from sim.catalogue.model import kv_bytes_per_token, params_active, params_total

SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def shape(kind: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {"model_type": kind, "max_position_embeddings": 131072} | dict(zip(SHAPE, sizes, strict=True)) | more


def experts(kind: str, number: int, each: int, width: int, **more: Any) -> dict[str, Any]:
    names = {"routed": "n_routed_experts", "plain": "num_experts", "ernie": "moe_num_experts"}
    chosen = {"ernie": "moe_k"}.get(kind, "num_experts_per_tok")
    return {names[kind]: number, chosen: each, "moe_intermediate_size": width} | more


LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
MODELS: dict[str, tuple[dict[str, Any], float, float, int]] = {
    # config, parameters [1e9], active ones [1e9], bytes of KV a token
    "Command A": (
        shape("cohere2", 12288, 36864, 64, 96, 8, 256000, sliding_window=4096, sliding_window_pattern=4),
        *(111.06, 111.06, 64 * 2 * 8 * 128 * 2),
    ),
    "EXAONE-4.0-32B": (
        shape("exaone4", 5120, 27392, 64, 40, 8, 102400, sliding_window=4096, sliding_window_pattern="LLLG"),
        *(32.0, 32.0, 64 * 2 * 8 * 128 * 2),
    ),
    "LFM2.5-8B-A1B": (
        shape("lfm2_moe", 2048, 7168, 24, 32, 8, 128000, layer_types=["conv", "conv", "full_attention", "conv"] * 6)
        | experts("plain", 32, 4, 1792, num_dense_layers=2, conv_L_cache=3, tie_word_embeddings=True),
        *(8.468, 1.6856, 6 * 2 * 8 * 64 * 2),
    ),
    "LFM2-1.2B": (
        shape("lfm2", 2048, 12288, 16, 32, 8, 65536, block_ff_dim=12288, full_attn_idxs=[2, 5, 8, 10, 12, 14]),
        *(1.17, 1.17, 6 * 2 * 8 * 64 * 2),
    ),
    "Seed-OSS-36B": (
        shape("seed_oss", 5120, 27648, 64, 80, 8, 155136, head_dim=128),
        *(36.15, 36.15, 64 * 2 * 8 * 128 * 2),
    ),
    "ERNIE-4.5-21B-A3B": (
        shape("ernie4_5_moe", 2560, 12288, 28, 20, 4, 103424, moe_num_shared_experts=2, moe_layer_start_index=1)
        | experts("ernie", 64, 6, 1536),
        *(21.83, 3.35, 28 * 2 * 4 * 128 * 2),
    ),
    "Hunyuan-A13B": (
        shape("hunyuan_v1_moe", 4096, 3072, 32, 32, 8, 128167, head_dim=128, num_experts=64, moe_topk=[8] * 32)
        | {"moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32},
        *(80.4, 12.75, 32 * 2 * 8 * 128 * 2),
    ),
    "LongCat-Flash": (
        shape("longcat_flash", 6144, 12288, 28, 64, 64, 131072, ffn_hidden_size=12288, expert_ffn_hidden_size=2048)
        | {"n_routed_experts": 512, "moe_topk": 12, "zero_expert_num": 256, "q_lora_rank": 1536, "v_head_dim": 128}
        | LATENT
        | {"qk_nope_head_dim": 128},
        *(560.6, 27.9, 56 * 576 * 2),
    ),
    "Step-3.5-Flash": (
        shape("step3p5", 4096, 11264, 45, 64, 8, 128896, head_dim=128, num_attention_groups=8, sliding_window=512)
        | {"layer_types": ["full_attention", *["sliding_attention"] * 3] * 12, "moe_num_experts": 288, "moe_top_k": 8}
        | {"attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}}
        | {
            "moe_layers_enum": ",".join(map(str, range(3, 45))),
            "moe_intermediate_size": 1280,
            "share_expert_dim": 1280,
        },
        *(196.9, 11.97, 45 * 2 * 8 * 128 * 2),
    ),
    "MiMo-V2-Flash": (
        shape("mimo_v2_flash", 4096, 16384, 48, 64, 4, 152576, head_dim=192, v_head_dim=128, sliding_window=128)
        | {"swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128}
        | {"hybrid_layer_pattern": [0, *[1] * 4, *[0, *[1] * 5] * 7, 0], "moe_layer_freq": [0] + [1] * 47}
        | experts("routed", 256, 8, 2048),
        *(308.8, 15.4, (39 * 8 + 9 * 4) * (192 + 128) * 2),
    ),
    "Llama-4-Maverick": (
        shape("llama4_text", 5120, 8192, 48, 40, 8, 202048, head_dim=128, intermediate_size_mlp=16384)
        | {"interleave_moe_layer_step": 2, "num_local_experts": 128, "num_experts_per_tok": 1}
        | {"attention_chunk_size": 8192},
        *(400.7, 17.2, 48 * 2 * 8 * 128 * 2),
    ),
    "Ling-lite-1.5": (
        shape("bailing_moe", 2048, 1408, 28, 16, 4, 126464, num_shared_experts=2) | experts("plain", 64, 6, 1408),
        *(16.8, 2.75, 28 * 2 * 4 * 128 * 2),
    ),
    "Phi-3.5-MoE": (
        shape("phimoe", 4096, 6400, 32, 32, 8, 32064, num_local_experts=16, num_experts_per_tok=2, attention_bias=True),
        *(41.9, 6.64, 32 * 2 * 8 * 128 * 2),
    ),
    "K-EXAONE-236B-A23B": (
        shape("exaone_moe", 6144, 18432, 48, 64, 8, 153600, head_dim=128, num_shared_experts=1, sliding_window=128)
        | {"first_k_dense_replace": 1, "sliding_window_pattern": "LLLG"}
        | experts("plain", 128, 8, 2048),
        *(236.6, 23.7, 48 * 2 * 8 * 128 * 2),
    ),
    "GLM-4.7-Flash": (
        shape("glm4_moe_lite", 2048, 10240, 47, 20, 20, 154880, n_shared_experts=1, first_k_dense_replace=1)
        | experts("routed", 64, 4, 1536)
        | LATENT
        | {"q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256},
        *(29.9, 3.9, 47 * 576 * 2),
    ),
    "dots.llm1": (
        shape("dots1", 4096, 10944, 62, 32, 32, 152064, head_dim=128, n_shared_experts=2, first_k_dense_replace=1)
        | experts("routed", 128, 6, 1408),
        *(142.8, 14.0, 62 * 2 * 32 * 128 * 2),
    ),
    "Granite-4.0-H-Small": (
        shape("granitemoehybrid", 4096, 768, 40, 32, 8, 100352, shared_intermediate_size=1536, num_local_experts=72)
        | {"num_experts_per_tok": 10, "layer_types": (["mamba"] * 9 + ["attention"]) * 4}
        | {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128},
        *(32.2, 8.8, 4 * 2 * 8 * 128 * 2),
    ),
    "Bamba-9B": (
        shape("bamba", 4096, 14336, 32, 32, 8, 128256, attn_layer_indices=[9, 18, 27])
        | {"mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_d_state": 128},
        *(9.78, 9.78, 3 * 2 * 8 * 128 * 2),
    ),
    "Falcon-H1-7B": (
        shape("falcon_h1", 3072, 12288, 44, 12, 2, 130048, head_dim=128, mamba_d_ssm=3072, mamba_n_heads=24)
        | {"mamba_d_head": 128, "mamba_d_state": 256},
        *(7.59, 7.59, 44 * 2 * 2 * 128 * 2),
    ),
    "Nemotron-Nano-9B-v2": (
        shape("nemotron_h", 4480, 15680, 56, 40, 8, 131072, head_dim=128, ssm_state_size=128, n_groups=8)
        | {"hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"}
        | {"mamba_num_heads": 128, "mamba_head_dim": 80},
        *(8.89, 8.89, 4 * 2 * 8 * 128 * 2),
    ),
    "Trinity-Nano": (
        shape("afmoe", 1024, 3072, 56, 8, 2, 200192, head_dim=128, num_dense_layers=2, num_shared_experts=1)
        | {"sliding_window": 2048, "global_attn_every_n_layers": 4}
        | experts("plain", 128, 8, 256),
        *(6.12, 1.024, 56 * 2 * 2 * 128 * 2),
    ),
    "Trinity-Mini": (
        shape("afmoe", 2048, 6144, 32, 32, 4, 200192, head_dim=128, num_dense_layers=2, num_shared_experts=1)
        | {"sliding_window": 2048, "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 8}
        | experts("plain", 128, 8, 1024),
        *(26.12, 3.475, 32 * 2 * 4 * 128 * 2),
    ),
    "Hy3": (
        shape("hy_v3", 4096, 13312, 80, 64, 8, 120832, head_dim=128, num_shared_experts=1, first_k_dense_replace=1)
        | {"qk_norm": True}
        | experts("plain", 192, 8, 1536),
        *(295.0, 20.68, 80 * 2 * 8 * 128 * 2),
    ),
    "Laguna-XS.2": (
        shape("laguna", 2048, 8192, 40, 48, 8, 100352, head_dim=128, sliding_window=512, gating="per-head")
        | {"layer_types": ["full_attention", *["sliding_attention"] * 3] * 10, "shared_expert_intermediate_size": 512}
        | {"num_attention_heads_per_layer": [48, 64, 64, 64] * 10}
        | experts("plain", 256, 8, 512),
        *(33.44, 3.01, 40 * 2 * 8 * 128 * 2),
    ),
    "Command-A+": (
        shape("cohere2_moe", 4096, 4096, 32, 128, 8, 262144, head_dim=128, sliding_window=4096, num_shared_experts=4)
        | {"num_experts": 128, "num_experts_per_tok": 8},
        *(218.3, 24.98, 32 * 2 * 8 * 128 * 2),
    ),
    "North-Mini-Code": (
        shape("cohere2_moe", 2048, 768, 49, 32, 4, 262144, head_dim=128, sliding_window=4096, first_k_dense_replace=1)
        | {"num_experts": 128, "num_experts_per_tok": 8, "prefix_dense_intermediate_size": 3072},
        *(30.48, 3.305, 49 * 2 * 4 * 128 * 2),
    ),
    "Mellum2-12B-A2.5B": (
        shape("mellum", 2304, 7168, 28, 32, 4, 98304, head_dim=128, sliding_window=1024)
        | {"layer_types": [*["sliding_attention"] * 3, "full_attention"] * 7}
        | experts("plain", 64, 8, 896),
        *(12.15, 2.44, 28 * 2 * 4 * 128 * 2),
    ),
    "Ling-3.0-tiny": (
        shape("bailing_hybrid", 1536, 4608, 24, 16, 16, 157184, head_dim=128, layer_group_size=4, no_kda_lora=True)
        | {"short_conv_kernel_size": 4, "num_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 256}
        | LATENT
        | {"qk_nope_head_dim": 128, "v_head_dim": 128}
        | experts("plain", 128, 8, 512),
        *(7.89, 1.381, 6 * 576 * 2),
    ),
    "Ling-3.0-flash": (
        shape("bailing_hybrid", 2560, 6144, 42, 32, 32, 157184, head_dim=128, layer_group_size=6, no_kda_lora=True)
        | {"short_conv_kernel_size": 4, "num_shared_experts": 1, "first_k_dense_replace": 2}
        | LATENT
        | {"qk_nope_head_dim": 128, "v_head_dim": 128}
        | experts("plain", 512, 8, 768),
        *(124.4, 5.50, 7 * 576 * 2),
    ),
    "Sarvam-30B": (
        shape("sarvam_moe", 4096, 8192, 19, 64, 4, 262144, head_dim=64, use_qk_norm=True, first_k_dense_replace=1)
        | {"num_shared_experts": 1, "moe_shared_expert_intermediate_size": 1024}
        | experts("plain", 128, 6, 1024),
        *(32.15, 4.53, 19 * 2 * 4 * 64 * 2),
    ),
    "Sarvam-105B": (
        shape("sarvam_mla", 4096, 16384, 32, 64, 64, 262144, first_k_dense_replace=1, num_shared_experts=1)
        | LATENT
        | {"qk_nope_head_dim": 128, "v_head_dim": 128}
        | experts("plain", 128, 8, 2048),
        *(106.0, 12.41, 32 * 576 * 2),  # 10.3 without embeddings
    ),
    "IQuest-Q1": (
        shape("iquest_q1", 3072, 1536, 88, 48, 8, 160000, head_dim=128, sliding_window=4096)
        | {"dense_intermediate_size": 12288, "num_hybrid_layers_block": 21}
        | {"num_experts": 256, "num_experts_per_tok": 8},
        *(320.2, 14.89, 88 * 2 * 8 * 128 * 2),
    ),
    "GigaChat-3.5": (
        shape("gigachat3_5", 7168, 18432, 40, 64, 64, 128256, full_attention_layers=list(range(3, 40, 4)))
        | LATENT
        | {"q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128, "layernorm_type": "pre_post"}
        | {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 32}
        | {"linear_num_value_heads": 64, "n_shared_experts": 1, "first_k_dense_replace": 3}
        | experts("routed", 256, 8, 2048),
        *(430.4, 26.43, 10 * 576 * 2),
    ),
    "Muse-Glimmer-30B": (
        shape("muse_glimmer", 6656, 19968, 52, 32, 2, 202048, head_dim=128, sliding_window=2048),
        *(27.86, 27.86, 52 * 2 * 2 * 128 * 2),
    ),
    "Apertus-70B": (shape("apertus", 8192, 43008, 80, 64, 8, 131072), *(70.6, 70.6, 80 * 2 * 8 * 128 * 2)),
    "Qwen2.5-VL-7B": (shape("qwen2_5_vl", 3584, 18944, 28, 28, 4, 152064), *(7.62, 7.62, 28 * 2 * 4 * 128 * 2)),
}


def written(folder: Path, keys: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(keys))
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_recent_configs_count_what_their_makers_name(name: str, tmp_path: Path) -> None:
    keys, total, active, kv_bytes = MODELS[name]
    model = model_from_config(written(tmp_path, keys))
    assert params_total(model) / 1e9 == pytest.approx(total, rel=0.002)
    assert params_active(model) / 1e9 == pytest.approx(active, rel=0.005)
    assert kv_bytes_per_token(model) == kv_bytes


def test_dense_layers_of_north_see_all_tokens(tmp_path: Path) -> None:
    """transformers 5.23 lists the layers of North: one dense layer, then every fourth of 48."""
    assert model_from_config(written(tmp_path, MODELS["North-Mini-Code"][0])).sliding_window_layers == 36


def test_state_layers_have_the_names_of_transformers(tmp_path: Path) -> None:
    """transformers 5.0 and later write linear_attention and full_attention for mamba and attention."""
    granite, nemotron = MODELS["Granite-4.0-H-Small"][0], MODELS["Nemotron-Nano-9B-v2"][0]
    kinds = {"mamba": "linear_attention", "attention": "full_attention", "mlp": "mlp"}
    letters = {"M": "mamba", "*": "attention", "-": "mlp"}
    blocks = [kinds[letters[one]] for one in nemotron["hybrid_override_pattern"]]
    for published, changes in (
        (granite, {"layer_types": [kinds[one] for one in granite["layer_types"]]}),
        (nemotron, {"layers_block_type": blocks, "hybrid_override_pattern": None}),
    ):
        again = model_from_config(written(tmp_path, published | changes))
        assert again == model_from_config(written(tmp_path, published))


def test_step_and_solar_as_transformers_writes_them(tmp_path: Path) -> None:
    published = MODELS["Step-3.5-Flash"][0]
    gone = ("moe_num_experts", "moe_top_k", "attention_other_setting", "moe_layers_enum", "num_attention_groups")
    again = {key: value for key, value in published.items() if key not in gone}
    again |= {"n_routed_experts": 288, "num_experts_per_tok": 8, "num_sliding_attention_heads": 96}
    again["mlp_layer_types"] = ["dense"] * 3 + ["sparse"] * 42
    assert model_from_config(written(tmp_path, again)) == model_from_config(written(tmp_path, published))
    solar = shape("solar_open", 4096, 1280, 48, 64, 8, 196608, head_dim=128, n_shared_experts=1)
    solar |= experts("routed", 128, 8, 1280)
    again = {key: value for key, value in solar.items() if key != "intermediate_size"}
    assert model_from_config(written(tmp_path, again)) == model_from_config(written(tmp_path, solar))


def test_windows_of_mimo_by_layer_types(tmp_path: Path) -> None:
    published = MODELS["MiMo-V2-Flash"][0]
    kinds = ["sliding_attention" if one else "full_attention" for one in published["hybrid_layer_pattern"]]
    changes = {"layer_types": kinds, "mlp_layer_types": ["dense"] + ["sparse"] * 47}
    again = {key: value for key, value in published.items() if key not in ("hybrid_layer_pattern", "moe_layer_freq")}
    assert model_from_config(written(tmp_path, again | changes)) == model_from_config(written(tmp_path, published))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Mellum2-12B-A2.5B", {"layer_types": ["banana"] * 28}, "layer_types: 'banana' cannot be costed"),
        ("Mellum2-12B-A2.5B", {"layer_types": ["full_attention"] * 27}, "layer_types: 27 entries for 28 layers"),
        ("Seed-OSS-36B", {"layer_types": ["linear_attention"] * 64}, "layer_types: 'linear_attention' cannot be"),
        (
            "Mellum2-12B-A2.5B",
            {"num_experts_per_tok": 65},
            "moe: experts_per_token is 65, but there are only 64 experts",
        ),
        ("Hy3", {"first_k_dense_replace": 81}, "dense_layers is 81, but only 80 layers"),
        ("Granite-4.0-H-Small", {"layer_types": ["mamba"] * 40}, "no layer keeps a KV cache"),
    ],
)
def test_layers_that_do_not_agree_are_refused(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        model_from_config(written(tmp_path, MODELS[name][0] | changes))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_step_time_is_refused_with_the_part(kind: str, tmp_path: Path) -> None:
    key, part = REFUSED[kind]
    for inner in (kind, f"{kind}_text"):
        with pytest.raises(ConfigError, match=f"{key}: {part} cannot be costed"):
            model_from_config(written(tmp_path, {"model_type": "seen", "llm_config": {"model_type": inner}}))
