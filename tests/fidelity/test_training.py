"""Training tables: recognised, every row told about, layouts completed as the framework would."""

import csv
from math import isfinite
from pathlib import Path
from random import Random

import pytest

from sim.benchdata import BenchdataError
from sim.benchdata.training import TrainingRow, read_training
from sim.catalogue.catalog import load_catalog
from sim.fidelity.training import PredictedTraining, PredictionBasis, predict_training, scores
from sim.fidelity.training_rows import case_of, node_bytes_per_s
from sim.fidelity.validation import TRAINING, table_kind
from sim.training.figures import TrainingData, network_named, rates
from sim.training.network import of_size

CATALOG = load_catalog()
FIGURED = PredictionBasis.of(CATALOG)
HEADER = (
    "id,source_key,model,params_b,arch_note,task,precision,gpu,n_gpus,gpus_per_node,interconnect_intra,tp,pp,dp,zero,recompute,"
    "micro_batch,global_batch,seq_len,step_s,tokens_per_s,samples_per_s,peak_memory_gb,trust,note,family"
)
BERT = "a,,BERT-large,0.34,,finetune_full,fp16,A100-SXM-40GB,1,,,,,1,,,32,32,384,,,100,,A,,bert"
LLAMA = "b,,Llama-3.1-8B,8,,pretrain,bf16,H100-SXM-80GB,8,8,nvlink4,,,8,3,full,2,128,8192,,60000,,60,A,,llama"


def table(folder: Path, *lines: str) -> Path:
    path = folder / "training.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def rows(folder: Path, *lines: str) -> list[TrainingRow]:
    return read_training(table(folder, *lines))


def test_the_kind_of_table_follows_from_its_header(tmp_path: Path) -> None:
    assert table_kind(table(tmp_path, BERT)) is TRAINING
    serving = tmp_path / "serving.csv"
    serving.write_text("id,gpu,model,load,isl,osl\n")
    assert table_kind(serving) is not TRAINING


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(BenchdataError) as caught:
        rows(tmp_path, BERT.replace(",32,32,", ",many,1.5,"), LLAMA, LLAMA, BERT.replace("a,,BERT-large", "c,,"))
    assert [(line, text) for _, line, text in caught.value.problems] == [
        (2, "global_batch must be a whole number, not 1.5"),
        (2, "micro_batch must be a number, not 'many'"),
        (4, "the id 'b' is in line 3 too"),
        (5, "model is missing"),
    ]


def test_what_nobody_knows_is_not_covered(tmp_path: Path) -> None:
    unknown = rows(tmp_path, BERT.replace("A100-SXM-40GB", "Voodoo 2"), LLAMA.replace("Llama-3.1-8B,8", "Secret,"))
    told = [predict_training(row, FIGURED) for row in unknown]
    assert [one.status for one in told] == ["not_covered"] * 2
    assert [one.reason for one in told] == ["unknown gpu 'Voodoo 2'", "unknown model 'Secret'"]


DEIT = "d,,DeiT-S,0.022,,image_classification,fp16,A100-SXM-40GB,1,,,,,1,,,128,128,,0.1,,1280,,A,,vit"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (DEIT, "unknown model 'DeiT-S'"),
        (DEIT.replace("image_classification", "pretrain").replace(",,0.1,", ",197,0.1,"), "unknown model 'DeiT-S'"),
        (DEIT.replace("DeiT-S,0.022", "ViT-L,0.307"), "unknown model 'ViT-L'"),
        (DEIT.replace("DeiT-S,0.022", "ViT-H 632M,"), "unknown model 'ViT-H 632M'"),
        (
            DEIT.replace("DeiT-S", "Tiny GPT").replace("vit", "gpt-large"),
            "unknown model 'Tiny GPT': 2.2e+07 parameters are fewer than an embedding of 51200 tokens has",
        ),
        (DEIT.replace("DeiT-S", "none.json"), "unknown model 'none.json': none.json: No such file or directory"),
    ],
)
def test_an_unknown_network_is_no_language_model(tmp_path: Path, line: str, reason: str) -> None:
    told = predict_training(rows(tmp_path, line)[0], FIGURED)
    assert (told.status, told.reason, told.metrics) == ("not_covered", reason, {})


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "batch", "tokens", "images_per_s"),
    [  # timm, results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv; NeMo user guide, Vision Transformer
        ("ViT-B/16", "RTX-3090", 1, 192, "", 390.86),
        ("ViT-B/16", "RTX-3090", 1, 32, "577", 96.96),
        ("ViT-L/16", "RTX-3090", 1, 64, "", 117.08),
        ("ViT-L/16", "RTX-3090", 1, 12, "577", 29.07),
        ("ViT-H/14", "RTX-3090", 1, 16, "", 39.94),
        ("ViT-g/14", "A100-80GB", 8, 4096, "", 693),
        ("ViT-g/14", "A100-80GB", 128, 4096, "", 10644),
        ("ViT-g/14", "H100-SXM-80GB", 8, 4096, "", 1428),
        ("ViT-g/14", "H100-SXM-80GB", 128, 4096, "", 21561),
    ],
)
def test_vision_transformers_train_at_measured_rates(
    tmp_path: Path, model: str, gpu: str, gpus: int, batch: int, tokens: str, images_per_s: float
) -> None:
    micro = min(64, batch // gpus) if gpus > 1 else batch
    sizes = f"{gpu},{gpus},8,,,,,,,{micro},{batch},{tokens}"
    row = rows(tmp_path, f"v,timm,{model},,,image_classification,bf16,{sizes},,,{images_per_s},,A,,vit")[0]
    assert abs(PredictedTraining(row, predict_training(row, FIGURED)).error("samples_per_s") or 1) < 0.25


def test_an_unlisted_family_that_counts_tokens_is_a_language_model(tmp_path: Path) -> None:
    line = LLAMA.replace("Llama-3.1-8B,8,", "Bloom 7.1B,,").replace(",llama", ",bloom")
    assert predict_training(rows(tmp_path, line)[0], FIGURED).status == "covered"


@pytest.mark.parametrize("size", [0.0, 1e6, 2.2e7, 1e8, 1e9, 1e12, 1e15])
@pytest.mark.parametrize(("hidden", "layers"), [(0, 0), (8192, 0), (0, 12), (512, 8), (1, 1)])
def test_a_network_of_any_size_is_real_or_refused(size: float, hidden: int, layers: int) -> None:
    try:
        network = of_size("x", size, hidden=hidden, layers=layers)
    except ValueError as error:
        assert "fewer than an embedding" in str(error)  # noqa: PT017
    else:
        assert network.layers >= 1
        assert network.hidden >= 1
        assert network.forward_flop > 0


@pytest.mark.parametrize(
    ("said", "computed", "method"),
    [
        ("int4+bf16", "bf16", "qlora"),
        ("nf4+bf16", "bf16", "qlora"),
        ("INT4+FP16", "fp16", "qlora"),
        ("int8+fp16", "fp16", "lora"),
        ("bfloat16", "bf16", "lora"),
    ],
)
def test_the_storage_of_frozen_weights_is_part_of_the_precision(
    tmp_path: Path, said: str, computed: str, method: str
) -> None:
    (row,) = rows(tmp_path, LLAMA.replace("pretrain,bf16", f"finetune_lora,{said}"))
    job = case_of(row, CATALOG, FIGURED.data).job
    assert (job.precision, job.method) == (computed, method)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("A800-80GB", "a800-80gb-sxm"),
        ("RTX 5060 Ti", "rtx-5060-ti-16gb"),
        ("Google-TPU-v6e", "tpu-v6e"),
    ],
)
def test_names_of_measured_tables_are_known(tmp_path: Path, name: str, gpu: str) -> None:
    (row,) = rows(tmp_path, LLAMA.replace("H100-SXM-80GB", name))
    assert predict_training(row, FIGURED).gpu == gpu
    assert CATALOG.gpu(name).id == gpu


def test_an_a800_is_an_a100_with_fewer_links() -> None:
    ours, full = CATALOG.gpu("A800-80GB"), CATALOG.gpu("a100-80gb-sxm")
    assert ours.nvlink_total_bytes_per_s is not None
    assert ours.nvlink_total_bytes_per_s.value == 400e9
    assert ours.memory_bytes_per_s.value == full.memory_bytes_per_s.value
    assert ours.fp16_flops.value == pytest.approx(full.fp16_flops.value, rel=1e-3)


ODD = (
    *("", "0", "-1", "1e-9", "1e9", "1e15", "1e308", "nan", "1_000", "\u0663", "x", "DeiT-S", "int4+bf16", "A800-80GB"),
    *("layers 0, hidden 0, heads 0", "layers 999999999, hidden 999999999, heads 7", "foo.json", "/etc/passwd", "fp8"),
    *("CP 0, EP 0, VP 0, GA 0", "CP 99999999999", "batch per DP 0", "0x connectx ndr 400", "1e400B", "999999999B"),
)


@pytest.mark.slow
def test_mutated_rows_are_predicted_or_reported(tmp_path: Path) -> None:
    random = Random(19)
    names = HEADER.split(",")
    told: set[str] = set()
    for _ in range(300):
        cells = random.choice((BERT, LLAMA, DEIT)).split(",")
        for place in random.sample(range(1, len(names)), random.randint(1, 4)):
            cells[place] = random.choice(ODD)
        path = tmp_path / "mutant.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows((names, cells))
        try:
            (row,) = read_training(path)
        except BenchdataError:
            told.add("refused")
            continue
        found = predict_training(row, FIGURED)
        told.add(found.status)
        assert found.reason.startswith("unknown ") or found.status == "covered"
        assert all(isinstance(value, float) and isfinite(value) for value in found.metrics.values()), (cells, found)
    assert told == {"refused", "covered", "not_covered"}


def test_more_ranks_than_gpus_are_reduced_to_them(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, LLAMA.replace(",nvlink4,,,8,3,", ",nvlink4,2,4,2,1,"))
    assert case_of(row, CATALOG, FIGURED.data).job.parallel.gpus == 8


@pytest.mark.parametrize(
    ("gpu", "cells", "per_node"),
    [
        ("H100-SXM-80GB", "64,8", 8),
        ("H100-SXM-80GB", "64,", 8),
        ("H100-SXM-80GB", "64,4", 4),
        ("H100-SXM-80GB", "2,8", 2),
        ("GB300", "256,4", 72),
        ("GB300", "16,4", 16),
    ],
)
def test_ranks_share_a_link_within_their_server_or_rack(tmp_path: Path, gpu: str, cells: str, per_node: int) -> None:
    (row,) = rows(tmp_path, LLAMA.replace("H100-SXM-80GB,8,8,nvlink4,,,8,", f"{gpu},{cells},,,,,"))
    assert case_of(row, CATALOG, FIGURED.data).job.gpus_per_node == per_node


def test_a_gpt_of_known_size_needs_no_entry(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, LLAMA.replace("Llama-3.1-8B,8,", "Mystery GPT,30,").replace("llama", "gpt-large"))
    network = case_of(row, CATALOG, FIGURED.data).job.network
    assert network.params == 30e9
    assert (network.forward_flop + network.head_flop) / 2 == pytest.approx(30e9, rel=0.05)


def test_dimensions_of_a_row_win_over_its_size(tmp_path: Path) -> None:
    (row,) = rows(
        tmp_path,
        LLAMA.replace("8,,pretrain", '8,"layers 10, hidden 1024, heads 8, vocab 1000",pretrain')
        .replace("Llama-3.1-8B", "Mine")
        .replace("llama", "gpt-large"),
    )
    network = case_of(row, CATALOG, FIGURED.data).job.network
    assert network.forward_flop == 2 * 10 * 12 * 1024**2


def test_an_unknown_layout_splits_a_model_until_it_fits(tmp_path: Path) -> None:
    line = "c,mlperf-v4.1,GPT-3-175B,175,,pretrain,,H100-SXM-80GB,512,8,,,,,,,,2048,2048,10.37,,,,A,,gpt-large"
    (row,) = rows(tmp_path, line)
    job = case_of(row, CATALOG, FIGURED.data).job
    assert job.parallel.gpus == 512
    assert job.parallel.tensor * job.parallel.pipeline >= 8
    assert job.precision == "fp8"
    assert job.global_batch == 2048


@pytest.mark.parametrize(
    ("text", "gb_per_s"),
    [
        ("omnipath-4x100", 50),
        ("ib-hdr200x8", 200),
        ("4x ConnectX-7 IB NDR 400Gb/s", 200),
        ("roce-1600", 200),
        ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-", 400),
        ("", 400),
    ],
)
def test_adapters_are_read_from_words(text: str, gb_per_s: float) -> None:
    assert node_bytes_per_s(text, CATALOG.gpu("h100-80gb-sxm"), 8) == pytest.approx(gb_per_s * 1e9)


def test_a_slower_step_and_a_lower_rate_score_alike(tmp_path: Path) -> None:
    line = BERT.replace(",,,100,,A", ",{},,{},,A")
    by_rate, by_step = (rows(tmp_path, line.format(*pair))[0] for pair in (("", 100), (0.32, "")))
    told = [PredictedTraining(row, predict_training(row, FIGURED)) for row in (by_rate, by_step)]
    errors = [scores([one], lambda _: ())[0].bias for one in told]
    assert errors[0] == pytest.approx(errors[1])


@pytest.mark.slow
def test_the_folder_of_a_validation(tmp_path: Path) -> None:
    read = TRAINING.read(table(tmp_path, BERT, LLAMA))
    outcomes = TRAINING.predict(read, CATALOG, 1, lambda *_: None)
    TRAINING.write(tmp_path, outcomes)
    with (tmp_path / "validation.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [one["status"] for one in found] == ["covered", "covered"]
    assert float(found[1]["tokens_per_s_error"]) == pytest.approx(float(found[1]["tokens_per_s_predicted"]) / 60000 - 1)
    assert found[1]["peak_memory_gb_predicted"]
    assert found[0]["samples_per_s_error"]
    assert not found[0]["tokens_per_s_error"]
    assert (tmp_path / "validation.png").stat().st_size > 1000
    assert TRAINING.show(outcomes)


def test_every_figure_belongs_to_something() -> None:
    data: TrainingData = FIGURED.data
    assert data.figures.stacks.keys() == data.stacks.keys()
    assert data.figures.gpus.keys() <= set(CATALOG.ids("gpus"))
    assert data.figures.networks.keys() <= data.networks.keys() | set(CATALOG.ids("models"))
    assert data.figures.links[-1].links == "*"
    campaigns = [key for one in data.stacks.values() for key in one.sources]
    shared = {key for key in campaigns if campaigns.count(key) > 1}
    assert all(sum(one.language for one in data.stacks.values() if key in one.sources) == 1 for key in shared)
    for name, one in data.networks.items():
        assert one.dimensions or (one.params and one.forward_flop and one.stream_bytes and one.kernels), name


@pytest.mark.parametrize(
    ("system", "gpu", "cells", "tensor", "context", "precision", "recomputed"),
    [
        ("mlperf-v5.1,x:Lenovo/results/SR680aV3/llama31_8b", "B200-SXM-180GB", ",", 1, 1, "nvfp4", 0.0),
        ("mlperf-v5.1,x:Lenovo/results/SR680aV3/llama31_8b", "B200-SXM-180GB", "fp8,2", 2, 1, "fp8", 0.0),
        ("mlperf-v5.0,x:Nebius/results/n128/llama31_405b", "H200-SXM-141GB", ",", 4, 2, "fp8", 0.0),
        ("mlperf-v5.0,x:AMD/results/MI300X/llama2_70b_lora", "MI300X", ",", 1, 1, "fp8", 21 / 32),
        ("mlperf-v5.0,x:AMD/results/MI325X/llama2_70b_lora", "MI325X", ",", 1, 1, "fp8", 0.0),
        ("megatron-bridge,x:README.md", "B200-SXM-180GB", ",", 1, 1, "fp8", 0.0),
    ],
)
def test_published_configurations_complete_rows(
    tmp_path: Path, system: str, gpu: str, cells: str, tensor: int, context: int, precision: str, recomputed: float
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "source_key,source,model,gpu,n_gpus,precision,tp,micro_batch,global_batch,seq_len,step_s,family\n"
        f"{system},Llama-3.1-8B,{gpu},64,{cells},,64,8192,1,llama\n"
    )
    (row,) = read_training(path)
    job = case_of(row, CATALOG, FIGURED.data).job
    assert (job.parallel.tensor, job.parallel.context, job.precision) == (tensor, context, precision)
    assert job.repeated_layers == pytest.approx(recomputed)
    assert job.parallel.zero == 1


def test_a_link_to_the_host_is_not_the_link_between_gpus(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        *(LLAMA.replace("nvlink4", link).replace("b,", f"{link[0]},", 1) for link in ("host PCIe 5.0 x16", "PCIe 5.0")),
    )
    assert [case_of(row, CATALOG, FIGURED.data).job.link.id for row in found] == ["nvlink4-nvswitch", "pcie5-x16"]


def test_rates_of_log_timestamps_count_epochs_of_3d_u_net_alone(tmp_path: Path) -> None:
    logged = "a,mlperf-v3.1,3D U-Net,,,segmentation,,H100-SXM-80GB,8,,,,,,,,,56,,,,2.5,,A,rate from log timestamps,"
    tracked = logged.replace("rate from log timestamps", "throughput = tracked_stats").replace("a,", "b,", 1)
    other = logged.replace("3D U-Net", "ResNet-50").replace("a,", "c,", 1)
    found = [case_of(row, CATALOG, FIGURED.data).counted_samples for row in rows(tmp_path, logged, tracked, other)]
    assert found == [pytest.approx(168 / 0.77, rel=0.01), 1, 1]


@pytest.mark.parametrize(
    ("source", "task", "stated", "recompute"),
    [
        ("", "finetune_lora", "", "full"),
        ("", "finetune_lora", "none", "none"),
        ("", "finetune_full", "", "none"),
        ("mlperf-v4.1", "finetune_lora", "", "none"),
    ],
)
def test_adapters_recompute_where_their_frameworks_do(
    tmp_path: Path, source: str, task: str, stated: str, recompute: str
) -> None:
    line = LLAMA.replace("b,,", f"b,{source},").replace("pretrain", task).replace(",3,full,", f",3,{stated},")
    (row,) = rows(tmp_path, line)
    assert case_of(row, CATALOG, FIGURED.data).job.recompute == recompute


@pytest.mark.parametrize(
    ("gpus", "batch", "micro"), [(8, 60, ""), (8, 61, 3), (8, 5, ""), (6, 6, 4), (7, 1, ""), (3, 100, 9)]
)
@pytest.mark.parametrize("line", [BERT, BERT.replace("BERT-large,0.34", "ResNet-50,").replace("bert", "cnn")])
def test_the_stated_global_batch_is_trained(tmp_path: Path, line: str, gpus: int, batch: int, micro: int | str) -> None:
    stated = line.replace("40GB,1,,,,,1,,,32,32,", f"40GB,{gpus},,,,,,,,{micro},{batch},")
    (row,) = rows(tmp_path, stated)
    job = case_of(row, CATALOG, FIGURED.data).job
    assert job.global_batch == batch
    assert job.parallel.gpus <= gpus
    share = job.micro_batch * job.micro_batches
    assert batch / job.parallel.data <= share < batch / job.parallel.data + job.micro_batches
    metrics = predict_training(row, FIGURED).metrics
    assert metrics["samples_per_s"] == pytest.approx(batch / metrics["step_s"])


@pytest.mark.parametrize(
    ("model", "forwards"), [("Llama-2-70B", 173 / 384), ("Stable-Diffusion-v2", 6.04), ("ResNet-50", 0)]
)
def test_rates_of_log_timestamps_include_evaluations(tmp_path: Path, model: str, forwards: float) -> None:
    logged = f"a,mlperf-v4.1,{model},,,finetune_lora,,H100-SXM-80GB,8,,,,,,,,,64,,,,2.5,,A,rate from log timestamps,"
    tracked = logged.replace("rate from log timestamps", "throughput = tracked_stats").replace("a,", "b,", 1)
    found = rows(tmp_path, logged, tracked)
    assert [case_of(row, CATALOG, FIGURED.data).evaluation_forwards for row in found] == [
        pytest.approx(forwards, rel=0.01),
        0,
    ]
    with_them, without = (predict_training(row, FIGURED).metrics["samples_per_s"] for row in found)
    assert with_them < without if forwards else with_them == without


XL = "a,{},TransformerXL-base,,,pretrain,fp16,{},1,,,,,1,,,24,24,,,9000,,,A,,transformer-xl"


def test_odd_vocabularies_lose_the_tensor_cores_of_old_libraries(tmp_path: Path) -> None:
    def head_flop(source: str, gpu: str) -> float:
        (row,) = rows(tmp_path, XL.format(source, gpu))
        return case_of(row, CATALOG, FIGURED.data).job.network.head_flop

    assert head_flop("lambda-v0", "rtx-3090") == head_flop("lambda-v1", "rtx-3090") == 2 * 267735 * 512
    assert head_flop("lambda-v1", "quadro-rtx-8000") == 2 * 267735 * 512
    assert head_flop("lambda-v0", "quadro-rtx-8000") == pytest.approx(4 * 2 * 267735 * 512, rel=0.01)


@pytest.mark.parametrize(("gpu", "gains"), [("h100-80gb-sxm", False), ("b200-180gb-sxm", True)])
def test_grouped_products_gain_from_eight_bits_on_blackwell_alone(gpu: str, gains: bool) -> None:
    card, network = CATALOG.gpu(gpu), network_named("qwen3-30b-a3b", CATALOG, FIGURED.data)
    reached = rates(FIGURED.data, FIGURED.kernels, card, CATALOG.link(card.link), network, "fp8", "nemo")
    assert (reached.expert_flop_per_s > reached.plain_flop_per_s) == gains


def test_a_diffusion_transformer_has_the_rate_of_matrix_products() -> None:
    convolutional = {
        name: network_named(name, CATALOG, FIGURED.data).convolutional for name in ("sd-2", "flux1-schnell")
    }
    assert convolutional == {"sd-2": True, "flux1-schnell": False}
