"""What an API server takes to read one chat in: `chat_template_s` and `request_turn_s` in data/engines.

intake.csv: bursts of 1,000 prompts of 128 tokens and four to answer, all sent at once to one server, as the pages of
GPUStack's performance lab have them (gpustack/gpustack@47277d79f4; column `page`). An event loop reads all of them
before the engine has the first, and the engine then answers at an even pace: the mean first token comes in the middle
of what is left of the run, so that reading took twice the mean first token less the run's duration.

That is how `chat_template_s` is simulated, too. `request_turn_s` is not: there the engine has each request as soon as
it has been read. The bursts side with the law. Where the server decides (gpt-oss-20b on H100, vLLM 0.11) two of them
took 4.04 and 4.70 s with a mean first token after 2.88 and 3.17 s; simulated at 1.5 ms they take 4.55 and 3.09 s where
all is read before the engine has any, 3.08 and 1.61 s where each is handed on. All closed loops
and bursts of the fit simulated both ways: throughput and TPOT of left-out rows are within 0.1 points, first tokens 0 to
0.8 points nearer in the mean and up to 3 farther in a median where all is read first; so requests are still handed on
one by one.

The law's figure holds what an engine's own steps put into it, too: of simulations without turns it reads 0.1 to 0.6 ms
for vLLM and SGLang, but 0.8 to 2.1 ms for TensorRT-LLM's three, so that little of their 2.15 ms is the API server's.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

BURSTS = Path(__file__).with_name("intake.csv")
MS = 1e3


def reading_ms(burst: dict[str, str]) -> float:
    """Of one request [ms]; about 0, or less, where reading is over before the engine has finished a step."""
    return (2 * float(burst["ttft_mean_ms"]) - MS * float(burst["duration_s"])) / float(burst["requests"])


def kind_of(burst: dict[str, str]) -> str:
    """The engine, and whether it reads a model's template anew for each chat."""
    engine = burst["serve"].split()[0]
    return f"{engine}, template read anew" if burst["reads_template"] == "yes" else engine


def main() -> None:
    """Prints each burst, and the middle of each engine's servers."""
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
