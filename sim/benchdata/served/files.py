"""Detection of file kinds by content, and grouping of files into recordings of one server's traffic."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sim.benchdata import read_benchmarks
from sim.benchdata.bench_json import is_result, rows_of
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import AMOUNTS, COUNTS, TEXTS, BenchRow
from sim.benchdata.served.load_generators import is_report, is_run, seen_in_report, seen_in_run
from sim.benchdata.served.metrics import seen_in
from sim.benchdata.served.otlp import are_metrics, scrapes_in
from sim.benchdata.served.scrapes import (
    MetricsScrape,
    is_matrix,
    is_page,
    matrices,
    scrape,
    start_time_s,
    text_of,
)
from sim.benchdata.served.spans import are_spans, seen_in_spans
from sim.benchdata.served.traffic import ServedPeriod
from sim.infile import json_objects, status
from sim.message import Message

TABLES = (".csv", ".tsv")
UNKNOWN = (
    "is none of the kinds of file that are read: a result of `vllm bench serve`, a report of GuideLLM or AIPerf, an "
    "answer of Prometheus to a query, spans or metrics in OTLP JSON"
)
FileContent = list[Any] | str
"""JSON objects in a file, or the text of a metrics page."""


@dataclass(slots=True)
class _Recording:
    """Scrapes of one recording: the files of a folder, or all files named individually."""

    name: str
    pages: list[tuple[Path, str]] = field(default_factory=list)
    answers: list[tuple[Path, Any]] = field(default_factory=list)
    collected: list[tuple[Path, Sequence[Any]]] = field(default_factory=list)
    """Files of an OpenTelemetry collector."""

    def add(self, path: Path, content: FileContent) -> None:
        """Add the content of the file *path* to the files of its kind."""
        if isinstance(content, str):
            self.pages.append((path, content))
        elif are_metrics(content[0]):
            self.collected.append((path, content))
        else:
            self.answers += [(path, one) for one in content]

    @property
    def place(self) -> Path:
        """Path of the first file."""
        return next(path for path, _ in (*self.pages, *self.answers, *self.collected))


def read_rows(
    paths: Sequence[Path], gpu: str, about: Sequence[str] = (), seconds: Sequence[float] = ()
) -> tuple[list[BenchRow], list[ServedPeriod]]:
    """Read the files of a server's traffic.

    Parameters
    ----------
    paths
        Files or folders; a table must be the only one.
    gpu
        GPU of the rows.
    about
        `column=value` for columns that the files lack.
    seconds
        Time from the first to the last scrape, one for all recordings or one for each.

    Returns
    -------
    tuple
        Rows to calibrate *gpu* with, and the observed traffic; only rows for a table.

    Raises
    ------
    BenchdataError
        The files have mistakes; the error lists all of them.

    """
    tables = [path for path in paths if path.suffix in TABLES]
    if tables:
        if len(paths) > 1:
            raise BenchdataError([(str(tables[0]), 0, "is a table, which is read alone; put all runs into it")])
        if about or seconds:
            text = "states what it measured; --about and --seconds are only for a server's metrics"
            raise BenchdataError([(str(paths[0]), 0, text)])
        return read_benchmarks(paths[0]), []
    rows: list[BenchRow] = []
    seen: list[ServedPeriod] = []
    problems: list[tuple[str, int, str]] = []
    known = {"gpu": gpu}
    try:
        known |= parsed(about)
    except BenchdataError as error:
        problems += error.problems
    understood = not problems  # after a mistake in *about*, every file would also be reported for lacking the columns
    recordings: dict[Path | None, _Recording] = {}
    files = list(_files(paths, problems))
    names = _names([path for _, path in files]) | _names([folder for folder, _ in files if folder])
    for folder, path in files:
        try:
            content = _content(path)
            if isinstance(content, str) or (content and (is_matrix(content[0]) or are_metrics(content[0]))):
                own = recordings.setdefault(folder, _Recording(names[folder] if folder else ""))
                own.add(path, content)
            elif understood:
                found = list(_rows_of_file(path, names[path], content, known))
                rows += [row for row, _ in found]
                seen += [one for _, one in found]
        except BenchdataError as error:
            problems += error.problems
    if problems:
        raise BenchdataError(list(dict.fromkeys(problems)))
    lengths = _lengths(seconds, len(recordings), paths)
    for own, length in zip(recordings.values(), lengths, strict=True):
        try:
            served = seen_in(_scrapes(own), length, own.name)
            rows += [row for one in served for row in one.rows(own.place, known)]
            seen += served
        except BenchdataError as error:
            problems += error.problems
    if problems:
        raise BenchdataError(list(dict.fromkeys(problems)))
    return rows, seen


def is_recording(content: FileContent) -> bool:
    """Return whether *content* is a page of /metrics, an answer of Prometheus or OTLP metrics."""
    if isinstance(content, str):
        return is_page(content)
    return bool(content) and (is_matrix(content[0]) or are_metrics(content[0]))


def traffic_of(paths: Sequence[Path], seconds: float | None) -> tuple[list[ServedPeriod], list[str]]:
    """Read the traffic in one recording of a server, without the load that a calibration needs.

    Parameters
    ----------
    paths
        Pages of /metrics in the order in which they were taken, answers of Prometheus, or OTLP metrics. A single page
        is the traffic since the server's start.
    seconds
        Time from the first page to the last, or since the start of the server for a single page [s]. Default: by the
        times of samples, else of the files.

    Returns
    -------
    tuple
        Traffic of each server, and sentences on how the time was found.

    Raises
    ------
    BenchdataError
        The files have mistakes.

    """
    recording, notes = _Recording(""), []
    problems: list[tuple[str, int, str]] = []
    for path in paths:
        try:
            recording.add(path, _content(path))
        except BenchdataError as error:
            problems += error.problems
    if problems:
        raise BenchdataError(problems)
    scrapes = _scrapes(recording)
    if seconds is None and recording.pages:
        times = [one.time_s for one in scrapes]
        if len(scrapes) == 1:
            seconds, note = _uptime_s(*recording.pages[0], times[0])
            notes.append(note)
        elif None in times:
            first, last = (status(path).st_mtime for path in (recording.pages[0][0], recording.pages[-1][0]))
            if last <= first:
                text = "is no later than the page before it: name them in the order in which they were taken"
                raise BenchdataError([(str(recording.pages[-1][0]), 0, text)])
            seconds = last - first
            notes.append(Message("the pages lie {seconds:,.0f} s apart by the times of their files", seconds))
    return seen_in(scrapes, seconds), notes


def _uptime_s(path: Path, text: str, now_s: float | None) -> tuple[float, str]:
    """Return the time from the start of the server to its page *text* [s], and a sentence on it."""
    started_s = start_time_s(text)
    if started_s is not None:
        taken_s = status(path).st_mtime if now_s is None else now_s
        if taken_s > started_s:
            by = "the time of its file" if now_s is None else "its samples"
            return taken_s - started_s, Message(
                "mean rate since the start of the server, up to {end}; its peaks are higher", by
            )
    text = "one page without the server's start: name a second page, taken later, or give --seconds since the start"
    raise BenchdataError([(str(path), 0, text)])


def _files(paths: Sequence[Path], problems: list[tuple[str, int, str]]) -> Iterator[tuple[Path | None, Path]]:
    """Yield (folder if named, file); missing or repeated files are added to *problems*."""
    taken: set[Path] = set()
    for path in paths:
        folder = path if path.is_dir() else None
        within = sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".") if folder else [path]
        if not within:
            problems.append((str(path), 0, "is an empty folder"))
        for file in within:
            if file.resolve() in taken:
                problems.append((str(file), 0, "is named twice; a run counts once"))
            else:
                taken.add(file.resolve())
                yield folder, file


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return unique names of *paths*, with as many parent folders as needed."""
    names = {path: path.name if path.is_dir() else path.stem for path in paths}
    for depth in range(2, max((len(path.absolute().parts) for path in names), default=0) + 1):
        for path in _with_same_name(names):
            names[path] = "-".join((*path.absolute().parts[-depth:-1], path.stem))
    return names | {path: path.name for path in _with_same_name(names)}


def _with_same_name(names: Mapping[Path, str]) -> list[Path]:
    number = Counter(names.values())
    return [path for path, name in names.items() if number[name] > 1]


def _content(file: Path) -> FileContent:
    text = text_of(file)
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json_objects(text)
    except json.JSONDecodeError as error:
        raise BenchdataError([(str(file), error.lineno, Message("is not JSON: {reason}", error.msg.lower()))]) from None


def _rows_of_file(
    path: Path, name: str, content: Sequence[Any], known: Mapping[str, str]
) -> Iterator[tuple[BenchRow, ServedPeriod]]:
    """Yield rows and traffic of a self-contained file, called *name*."""
    if content and all(map(is_result, content)):
        for run, row in rows_of(content, path, name, known):
            yield row, _client_traffic(run, row)
    elif content and are_spans(content[0]):
        one = replace(seen_in_spans(path, content), id=name)
        yield one.row(path, known), one
    elif content and is_report(content[0]):
        for one in seen_in_report(path, name, content[0]):
            yield one.row(path, known), one
    elif content and is_run(content[0]):
        one = replace(seen_in_run(path, content[0]), id=name)
        yield one.row(path, known), one
    else:
        raise BenchdataError([(str(path), 0, UNKNOWN)])


def _client_traffic(data: dict[str, Any], row: BenchRow) -> ServedPeriod:
    """Return the traffic of the client run *data*, whose row is *row*."""
    seconds, answered = data.get("duration"), data.get("completed")
    return ServedPeriod(
        id=row.id,
        model=row.model,
        engine=row.engine,
        requests=float(answered or 0),
        seconds=float(seconds) if isinstance(seconds, int | float) and seconds > 0 and answered else None,
        prompt_tokens=row.isl or 1.0,
        output_tokens=row.osl or 1.0,
        prompt_cv=row.prompt_cv or 0.0,
        output_cv=row.output_cv or 0.0,
    )


def _scrapes(recording: _Recording) -> list[MetricsScrape]:
    if sum(map(bool, (recording.pages, recording.answers, recording.collected))) > 1:
        text = "is mixed with metrics of another kind; put each recording into its own folder"
        raise BenchdataError([(str(recording.place), 0, text)])
    if recording.collected:
        return sorted(
            (one for path, content in recording.collected for one in scrapes_in(path, content)), key=_scrape_time
        )
    if recording.answers:
        wrong = [
            (str(path), 0, "is not an answer to a query of series")
            for path, one in recording.answers
            if not is_matrix(one)
        ]
        if wrong:
            raise BenchdataError(wrong)
        return matrices(recording.answers)
    return [scrape(path, text) for path, text in recording.pages]


def _scrape_time(scrape: MetricsScrape) -> float:
    return scrape.time_s or 0.0


def _lengths(seconds: Sequence[float], recordings: int, paths: Sequence[Path]) -> Sequence[float | None]:
    """Return the length of each recording, if given [s]."""
    if not seconds or not recordings:
        if seconds:
            text = "gives its duration; --seconds is only for a server's metrics"
            raise BenchdataError([(str(paths[0]), 0, text)])
        return [None] * recordings
    if len(seconds) not in (1, recordings):
        text = Message(
            "{count} lengths for {recordings} recordings; give one for all or one for each", len(seconds), recordings
        )
        raise BenchdataError([("--seconds", 0, text)])
    return list(seconds) * (recordings if len(seconds) == 1 else 1)


def parsed(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the `column=value` pairs of --about. Raises BenchdataError."""
    found = {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}
    wrong: list[tuple[str, int, str]] = [
        ("--about", 0, Message("must be column=value, not {pair!r}", pair))
        for pair in pairs
        if not pair.partition("=")[2]
    ]
    wrong += [(f"--about {name}", 0, "is given twice") for name in _repeated_keys(pairs)]
    columns = (*TEXTS, *COUNTS, *AMOUNTS)
    for name in (one for one, value in found.items() if value and one not in columns):
        near = get_close_matches(name, columns, n=1)
        which = Message("did you mean {near}?", near[0]) if near else f"one of {', '.join(columns)}"
        wrong.append((f"--about {name}", 0, Message("there is no such column; {hint}", which)))
    if wrong:
        raise BenchdataError(wrong)
    return found


def _repeated_keys(pairs: Sequence[str]) -> list[str]:
    return [name for name, number in Counter(pair.partition("=")[0].strip() for pair in pairs).items() if number > 1]
