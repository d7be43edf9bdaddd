"""Measurement of the loads of a table on `vllm serve` with dummy weights; needs vLLM and one GPU.

`python served_loads.py TABLE OUT --seconds 280` starts one server per model of TABLE (columns of `gpufleet validate`),
with vLLM's defaults, sends each row's load over HTTP, and writes after each load OUT/<id>.json in the format of
`vllm bench serve --save-result`, with watts and start-up log lines beside it. Rows that no longer fit into the time are
left out.
"""

import argparse
import asyncio
import contextlib
import csv
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": False,
    "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"},
}  # fmt: skip
QWEN3 = {
    "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 1000000.0, "rope_scaling": None, "sliding_window": None,
    "use_sliding_window": False, "initializer_range": 0.02,
}  # fmt: skip
EIGHT_BITS = {"num_bits": 8, "type": "float", "symmetric": True}
FP8_CHANNELS = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
    "ignore": ["lm_head"], "kv_cache_scheme": None, "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": EIGHT_BITS | {"strategy": "channel", "dynamic": False},
        "input_activations": EIGHT_BITS | {"strategy": "token", "dynamic": True}}},
}  # fmt: skip
MODELS = {
    "Llama-3.1-8B": LLAMA_8B,
    "Qwen3-32B": QWEN3 | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600,
        "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "max_window_layers": 64,
        "quantization_config": FP8_CHANNELS,
    },
    "Qwen3-30B-A3B": QWEN3 | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "max_window_layers": 48, "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
    },
}  # fmt: skip
"""Public shapes, as config.json states them. FP8: one scale per channel of the weights, one per token of the inputs."""
PORT = 8011
TOKENS = range(100, 100_000)
"""Token ids of prompts."""
LONGEST_OVER_MEAN = 8


def write_model(name: str, folder: Path) -> Path:
    """Write config.json and a tokenizer that has one word per token id; return the folder."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    config = MODELS[name]
    (path / "config.json").write_text(json.dumps(config))
    words = {f"w{number}": number for number in range(config["vocab_size"])}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }  # fmt: skip
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    plain = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config["max_position_embeddings"]}
    (path / "tokenizer_config.json").write_text(json.dumps(plain | {"bos_token": "w1", "eos_token": "w2"}))
    return path


def lengths(mean: float, cv: float, number: int, draw: random.Random) -> list[int]:
    """Return *number* lengths: all equal, or lognormal, at most eight times the mean."""
    if not cv:
        return [round(mean)] * number
    sigma = math.sqrt(math.log(1 + cv * cv))
    most = math.ceil(LONGEST_OVER_MEAN * mean)
    drawn = (draw.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma) for _ in range(number))
    return [min(most, max(1, round(one))) for one in drawn]


class Stream(asyncio.Protocol):
    """Request over a connection of its own, with the time of each received piece."""

    def __init__(self, request: bytes) -> None:
        self.request, self.times, self.tail, self.events = request, [], b"", 0
        self.done = asyncio.get_running_loop().create_future()
        self.head = b""

    def connection_made(self, transport: Any) -> None:
        """Send the request."""
        self.transport = transport
        self.sent = time.perf_counter()
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Note when *data* came, and its events."""
        now = time.perf_counter()
        found = data.count(b"data: {")
        if found:
            self.times.append(now)
            self.events += found
        if len(self.head) < 300:
            self.head += data[:300]
        self.tail = (self.tail + data)[-1500:]
        if b"data: [DONE]" in self.tail:
            self.finish()

    def connection_lost(self, error: Exception | None) -> None:
        """End the request, whole or not."""
        self.finish()

    def finish(self) -> None:
        """End the request."""
        if not self.done.done():
            self.done.set_result(None)
        self.transport.close()


def body(model: str, prompt: list[int], output: int) -> bytes:
    """Return an HTTP request for a streamed completion of exactly *output* tokens."""
    asked = {
        "model": model, "prompt": prompt, "max_tokens": output, "min_tokens": output, "ignore_eos": True,
        "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    text = json.dumps(asked, separators=(",", ":")).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{PORT}\r\nContent-Type: application/json\r\n"
    return (head + f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n").encode() + text


async def ask(request: bytes, prompt: int, output: int) -> dict[str, Any]:
    """Send *request*, and return its times once the answer has ended."""
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Stream(request), "127.0.0.1", PORT)
    await stream.done
    times = stream.times
    try:
        usage = json.loads(stream.tail.rpartition(b"data: [DONE]")[0].rpartition(b"data: ")[2].split(b"\r")[0])["usage"]
        made = usage["completion_tokens"]
    except (ValueError, KeyError, TypeError):
        made = None
    # The event of usage is no token: where it is a piece of its own, the answer ends with the piece before.
    answered = times[:-1] if len(times) > output else times
    ok = made == output and len(times) > 1
    return {
        "ok": ok, "start": stream.sent, "prompt": prompt, "output": output,
        "ttft": times[0] - stream.sent if times else None,
        "e2e": answered[-1] - stream.sent if answered else None, "events": stream.events,
        "gap": max((b - a for a, b in pairwise(answered)), default=None),
        "head": "" if ok else stream.head.decode(errors="replace")[:300],
    }  # fmt: skip


async def send_load(row: dict[str, Any], seed: int, limit_s: float) -> tuple[list[dict[str, Any]], float, float]:
    """Send the load of *row*; return its requests, when it began, and the time to the last finished [s]."""
    draw = random.Random(seed)
    number, rate = int(row["num_requests"]), float(row["rate_req_s"] or 0)
    prompts = lengths(float(row["isl"]), float(row["prompt_cv"] or 0), number, draw)
    outputs = lengths(float(row["osl"]), float(row["output_cv"] or 0), number, draw)
    sent = [(body(row["model"], draw.choices(TOKENS, k=p), o), p, o) for p, o in zip(prompts, outputs, strict=True)]
    gaps = [draw.expovariate(1.0) for _ in sent]
    scale = number / rate / sum(gaps) if rate else 0.0  # as `vllm bench serve` does
    found: list[dict[str, Any]] = []
    begin = time.perf_counter()

    async def client(work: Iterator[tuple[bytes, int, int]]) -> None:
        for one in work:
            found.append(await ask(*one))  # noqa: PERF401 - kept where the time limit ends the client

    async def at(when: float, one: tuple[bytes, int, int]) -> None:
        await asyncio.sleep(max(0.0, begin + when - time.perf_counter()))
        found.append(await ask(*one))

    if row["load"] == "poisson":
        due, tasks = 0.0, []
        for one, gap in zip(sent, gaps, strict=True):
            due += gap * scale
            tasks.append(asyncio.create_task(at(due, one)))
    else:
        work = iter(sent)
        tasks = [asyncio.create_task(client(work)) for _ in range(int(row["concurrency"] or 1))]
    done, late = await asyncio.wait(tasks, timeout=limit_s)
    for task in late:
        task.cancel()
    for task in done:
        if task.exception():
            print("client error", repr(task.exception())[:300], flush=True)
    return found, begin, time.perf_counter() - begin


def quantile(values: list[float], share: float) -> float:
    """Return the quantile *share* of *values*, interpolated linearly."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def result(row: dict[str, Any], found: list[dict[str, Any]], seconds: float, watts: dict[str, Any]) -> dict[str, Any]:
    """Return a run in the format of `vllm bench serve --save-result`."""
    good = [one for one in found if one["ok"]]
    run = {
        "id": row["id"], "backend": "vllm", "model_id": row["model"], "num_prompts": int(row["num_requests"]),
        "completed": len(good), "failed": len(found) - len(good), "duration": seconds,
        "max_concurrency": int(row["concurrency"]) if row["load"] != "poisson" and row["concurrency"] else None,
        "request_rate": float(row["rate_req_s"]) if row["rate_req_s"] else "inf",
        "total_input_tokens": sum(one["prompt"] for one in good),
        "total_output_tokens": sum(one["output"] for one in good),
    } | watts  # fmt: skip
    if good:
        run |= {
            "request_throughput": len(good) / seconds,
            "output_throughput": run["total_output_tokens"] / seconds,
            "total_token_throughput": (run["total_input_tokens"] + run["total_output_tokens"]) / seconds,
            "events": sum(one["events"] for one in good),
        }
        each = {
            "ttft": [one["ttft"] for one in good],
            "tpot": [(one["e2e"] - one["ttft"]) / (one["output"] - 1) for one in good if one["output"] > 1],
            "e2el": [one["e2e"] for one in good],
            "gap": [one["gap"] for one in good if one["gap"] is not None],
        }
        for name, values in each.items():
            run |= {f"mean_{name}_ms": 1e3 * statistics.fmean(values), f"median_{name}_ms": 1e3 * quantile(values, 0.5),
                    f"p99_{name}_ms": 1e3 * quantile(values, 0.99)}  # fmt: skip
    return run


class Meter(threading.Thread):
    """Samples of the GPU's power, clock and memory every 0.2 s, and its energy counter."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, ...]] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml, self.gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception as error:
            print("no NVML:", error, flush=True)
            self.nvml = None

    def run(self) -> None:
        """Take samples until the program ends."""
        while self.nvml is not None:
            self.samples.append(self.sample())
            time.sleep(0.2)

    def sample(self) -> tuple[float, ...]:
        """Return time [s], power [W], energy [J], clock [MHz], temperature [C] and used memory [MiB]."""
        values = [
            lambda: self.nvml.nvmlDeviceGetPowerUsage(self.gpu) / 1e3,
            lambda: self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu) / 1e3,
            lambda: self.nvml.nvmlDeviceGetClockInfo(self.gpu, 1),
            lambda: self.nvml.nvmlDeviceGetTemperature(self.gpu, 0),
            lambda: self.nvml.nvmlDeviceGetMemoryInfo(self.gpu).used >> 20,
        ]
        found = [time.perf_counter()]
        for value in values:
            try:
                found.append(value())
            except Exception:
                found.append(math.nan)
        return tuple(found)

    def between(self, since: float, until: float) -> dict[str, Any]:
        """Return means and extremes of the samples from *since* to *until*."""
        inside = [one for one in self.samples if since <= one[0] <= until]
        if len(inside) < 2:
            return {}
        first, last = inside[0], inside[-1]
        return {
            "watts_mean": statistics.fmean(one[1] for one in inside),
            "power_w": (last[2] - first[2]) / (last[0] - first[0]),
            "watts": [round(one[1]) for one in inside], "sm_mhz": statistics.median(one[3] for one in inside),
            "sm_mhz_least": min(one[3] for one in inside), "celsius": max(one[4] for one in inside),
            "used_mib": last[5],
        }  # fmt: skip


def ready(process: subprocess.Popen[bytes], until: float) -> bool:
    """Return whether the server answers before *until*."""
    while time.perf_counter() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2) as answer:
                if answer.status == 200:
                    return True
        except OSError:
            time.sleep(0.2)
    return False


KEPT_LINES = (
    "KV cache", "memory", "concurrency", "took", "seconds", "backend", "Chunked", "Capturing", "async", "ERROR",
    "Error", "graph", "kernel", "non-default", "max_num", "version",
)  # fmt: skip


def run_model(name: str, rows: list[dict[str, Any]], options: argparse.Namespace, meter: Meter, until: float) -> None:
    """Start a server of the model *name*, send it the loads *rows* while there is time, and end it."""
    out: Path = options.out
    path = write_model(name, options.models)
    log_path = out / f"server-{name}.log"
    begin = time.perf_counter()
    command = [*options.server, "serve", str(path), "--served-model-name", name, "--load-format", "dummy",
               "--port", str(PORT), "--host", "127.0.0.1", *options.server_options.split()]  # fmt: skip
    with log_path.open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        if not ready(server, min(until - 20, begin + options.start_limit)):
            print("server did not start", name, server.poll(), flush=True)
            print(log_path.read_text()[-6000:], flush=True)
            return
        started = time.perf_counter()
        print(f"{name}: ready after {started - begin:.1f} s", flush=True)
        lines = [line for line in log_path.read_text().splitlines() if any(word in line for word in KEPT_LINES)]
        time.sleep(1.2)
        idle = meter.between(started, time.perf_counter())
        (out / f"start-{name}.txt").write_text(json.dumps({"seconds": started - begin, "idle": idle, "lines": lines}))
        for number, (clients, prompt, output) in enumerate(((1, 1024, 8), (64, 1024, 24), (32, 300, 64))):
            warm = {"id": "warm-up", "model": name, "load": "closed_loop", "concurrency": clients, "rate_req_s": "",
                    "isl": prompt, "osl": output, "prompt_cv": "",
                    "output_cv": "0.5", "num_requests": 2 * clients}  # fmt: skip
            found, _, seconds = asyncio.run(send_load(warm, 900 + number, 30))
            failed = [one for one in found if not one["ok"]]
            print(f"warm-up {clients}: {seconds:.1f} s, {len(failed)} failed", failed[:1], flush=True)
        for row in rows:
            left = until - time.perf_counter()
            if left < float(row.get("seconds") or 15) + 3:
                print(row["id"], f"left out: {left:.0f} s left", flush=True)
                continue
            seed = options.seed + sum(row["id"].encode())
            found, since, seconds = asyncio.run(send_load(row, seed, min(left - 2, 60)))
            watts = meter.between(since, since + seconds)
            run = result(row, found, seconds, watts)
            run["requests"] = [
                [round(one["start"] - since, 4), one["prompt"], one["output"], round(one["ttft"], 5),
                 round(one["e2e"], 5)]
                for one in found if one["ok"]
            ]  # fmt: skip
            (out / f"{row['id']}.json").write_text(json.dumps(run))
            short = {key: round(run[key], 2) for key in ("duration", "output_throughput", "request_throughput",
                "mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "p99_gap_ms", "watts_mean",
                "power_w", "sm_mhz")
                if isinstance(run.get(key), int | float)}  # fmt: skip
            print(row["id"], run["completed"], run["failed"], json.dumps(short), flush=True)
            if run["failed"]:
                print([one for one in found if not one["ok"]][:1], flush=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        text = log_path.read_text()
        log_path.write_text(text if len(text) < 3_000_000 else text[:1_500_000] + "\n...\n" + text[-1_500_000:])


def main() -> None:
    """Measure the loads of the table named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=Path, default=Path("/tmp/models"))
    parser.add_argument("--only", default="", help="models, separated by commas")
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--start-limit", type=float, default=200)
    parser.add_argument("--seed", type=int, default=36)
    parser.add_argument("--server", default="vllm")
    parser.add_argument("--server-options", default="")
    options = parser.parse_args()
    options.server = options.server.split()
    until = time.perf_counter() + options.seconds
    try:
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    except ImportError:
        pass
    options.out.mkdir(parents=True, exist_ok=True)
    with options.table.open() as file:
        rows = list(csv.DictReader(file))
    meter = Meter()
    meter.start()
    names = options.only.split(",") if options.only else list(dict.fromkeys(row["model"] for row in rows))
    for name in names:
        if until - time.perf_counter() > 60 or name == names[0]:
            try:
                run_model(name, [row for row in rows if row["model"] == name], options, meter, until)
            except Exception as error:
                print("failed", name, repr(error), flush=True)
                traceback.print_exc(file=sys.stdout)
    lines = [",".join(f"{value:.3f}" for value in sample) for sample in meter.samples]
    (options.out / "power.csv").write_text("s,watts,joules,sm_mhz,celsius,used_mib\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
