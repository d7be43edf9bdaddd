"""What an API server takes to read one chat in: `chat_template_s` and `request_turn_s` in data/engines.

intake.csv: bursts of 1,000 prompts of 128 tokens and four to answer, all sent at once to one server, as the pages of
GPUStack's performance lab have them (gpustack/gpustack@47277d79f4; column `page`). An event loop reads all of them
before the engine has the first, and the engine then answers at an even pace: the mean first token comes in the middle
of what is left of the run, so that reading took twice the mean first token less the run's duration.

That is how `chat_template_s` is simulated, too. `request_turn_s` is not: there the engine has each request as soon as
it has been read, and a burst's mean first token hardly tells the turn (four of these, simulated: 0.1 to 0.3 ms by this
formula at turns of 1.2 and 1.5 ms). Its order of magnitude is known, not its figure.
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
