"""Time in which an API server reads a chat: `chat_template_s` and `request_turn_s` in data/engines.

intake.csv has bursts of 1,000 prompts of 128 tokens with four output tokens, all sent at once to one server, from the
pages of GPUStack's performance lab (gpustack/gpustack@47277d79f4; column `page`). If an event loop reads all of them
before the engine gets the first, and the engine then answers at an even pace, the mean first token comes in the middle
of the rest of the run. Reading then took twice the mean time to first token minus the run's duration.

The simulation of `chat_template_s` follows this. `request_turn_s` does not: there the engine gets each request as soon
as it has been read. The bursts support reading first: where the server dominates (gpt-oss-20b on H100, vLLM 0.11) two
of them took 4.04 and 4.70 s with mean first tokens after 2.88 and 3.17 s; simulated at 1.5 ms they take 4.55 and 3.09
s with reading first, and 3.08 and 1.61 s with immediate forwarding. For all closed loops and bursts of the fit, reading
first changes throughput and TPOT errors of left-out rows by at most 0.1 points; errors of first tokens are 0 to 0.8
points smaller in the mean and up to 3 points larger in a median. Requests are therefore forwarded one by one.

The result includes time of an engine's own steps: for simulations without turns it is 0.1 to 0.6 ms for vLLM and
SGLang, but 0.8 to 2.1 ms for TensorRT-LLM's three, so that little of their 2.15 ms is due to the API server.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

BURSTS = Path(__file__).with_name("intake.csv")
MS = 1e3


def reading_ms(burst: dict[str, str]) -> float:
    """Return the reading time of a request [ms]; about 0 or less if reading ends within the first step."""
    return (2 * float(burst["ttft_mean_ms"]) - MS * float(burst["duration_s"])) / float(burst["requests"])


def kind_of(burst: dict[str, str]) -> str:
    """Return the engine, and whether it processes a model's template for each chat."""
    engine = burst["serve"].split()[0]
    return f"{engine}, template read anew" if burst["reads_template"] == "yes" else engine


def main() -> None:
    """Print each burst, and the median over servers of each engine."""
    with BURSTS.open(encoding="utf-8", newline="") as file:
        bursts = list(csv.DictReader(file))
    for burst in bursts:
        print(f"{reading_ms(burst):6.1f} ms  {burst['page']}: {burst['serve']}")
    kinds: dict[str, list[float]] = defaultdict(list)
    for burst in bursts:
        kinds[kind_of(burst)].append(reading_ms(burst))
    for kind, found in kinds.items():
        print(f"{kind}: median {median(found):.2f} ms, {min(found):.1f} to {max(found):.1f} ({len(found)})")


if __name__ == "__main__":
    main()
