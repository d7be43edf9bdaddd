"""Which kind of file it is, by what stands in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.benchdata import read_benchmarks
from sim.benchdata.bench_json import read_result
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import BenchRow
from sim.benchdata.served.guidellm import is_report, seen_in_report
from sim.benchdata.served.metrics import seen_in
from sim.benchdata.served.samples import is_matrix, matrices, objects, scrape, text_of
from sim.benchdata.served.seen import Seen
from sim.benchdata.served.spans import are_spans, seen_in_spans

TABLES = (".csv", ".tsv")
UNKNOWN = (
    "is of no kind that is read: a result of `vllm bench serve`, a report of GuideLLM, an answer of Prometheus to a "
    "range query, spans in OTLP JSON"
)


def read_rows(
    paths: Sequence[Path], gpu: str, about: Sequence[str], seconds: float | None
) -> tuple[list[BenchRow], list[Seen]]:
    """Rows to calibrate *gpu* with, and the traffic that they were seen under; of a table only rows.

    *about*: `column=value` for what a server does not tell. Raises BenchdataError.
    """
    known = {"gpu": gpu, **parsed(about)}
    seen = read_served(paths, seconds)
    if seen is not None:
        return [one.row(paths[0], known) for one in seen], seen
    if about or seconds:
        text = "says itself what ran; --about and --seconds are for a server's metrics"
        raise BenchdataError([(str(paths[0]), 0, text)])
    if len(paths) > 1:
        raise BenchdataError([(str(paths[1]), 0, "is one table too many; several results may stand in a folder")])
    return read_benchmarks(paths[0]), _of_client(paths[0])


def _of_client(path: Path) -> list[Seen]:
    """The traffic of a result of vLLM's client."""
    if path.suffix != ".json":
        return []
    row = read_result(path)
    data = (objects(text_of(path)) or [{}])[0]
    seconds, answered = data.get("duration"), data.get("completed")
    return [
        Seen(
            id=row.id,
            model=row.model,
            engine=row.engine,
            requests=float(answered or 0),
            seconds=float(seconds) if seconds and answered else None,
            prompt_tokens=row.isl or 1.0,
            output_tokens=row.osl or 1.0,
            prompt_cv=row.prompt_cv or 0.0,
            output_cv=row.output_cv or 0.0,
        )
    ]


def read_served(paths: Sequence[Path], seconds: float | None = None) -> list[Seen] | None:
    """What a server told in *paths*; None if the first is a table, a folder or a result of vLLM's client.

    Several files are scrapes in the order in which they were taken, or answers to several range queries. *seconds*:
    from the first scrape to the last. Raises BenchdataError.
    """
    first = paths[0]
    if first.is_dir() or first.suffix in TABLES:
        return None
    texts = {path: text_of(path) for path in paths}
    documents = {path: objects(text) if text.lstrip()[:1] in ("{", "[") else None for path, text in texts.items()}
    begun = documents[first]
    if begun and isinstance(begun[0], dict) and "completed" in begun[0]:
        return None
    if begun is None:
        return [seen_in([scrape(path, texts[path]) for path in paths], seconds)]
    if is_matrix(begun[0]):
        answers = [(path, one) for path, all_ in documents.items() for one in all_ or ()]
        wrong = [(str(path), 0, "is no answer to a range query") for path, one in answers if not is_matrix(one)]
        wrong += [(str(path), 0, "is no JSON") for path, all_ in documents.items() if all_ is None]
        if wrong:
            raise BenchdataError(wrong)
        return [seen_in(matrices(answers), seconds)]
    found: list[Seen] = []
    for path, all_ in documents.items():
        if all_ and are_spans(all_[0]):
            found.append(seen_in_spans(path, all_))
        elif all_ and is_report(all_[0]):
            found += seen_in_report(path, all_[0])
        else:
            raise BenchdataError([(str(path), 0, UNKNOWN)])
    return found


def parsed(pairs: Sequence[str]) -> Mapping[str, str]:
    """`column=value` pairs. Raises BenchdataError."""
    wrong = [("--about", 0, f"must be column=value, not {pair!r}") for pair in pairs if not pair.partition("=")[2]]
    if wrong:
        raise BenchdataError(wrong)
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}
