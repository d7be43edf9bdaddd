"""OTLP files as the source of a watched fleet: what the OpenTelemetry collector's file exporter writes, as it grows.

Samples are those that a Prometheus server would answer to range queries: at each time the last one of the five minutes
before it. A file is recognised by its first line with a point, so that a rotated or compressed file is read once.

References
----------
opentelemetry-collector-contrib, exporter/fileexporter/README.md (format, rotation), receiver/prometheusreceiver.

"""

import gzip
import json
import re
import time
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from math import ceil, inf, nan
from pathlib import Path
from typing import IO, Any

import numpy as np

from sim.benchdata.served.otlp import (
    MALFORMED,
    NOT_OTLP,
    OtlpPoint,
    are_metrics,
    is_engine_metric,
    parts_of,
    points_in,
    series_of,
)
from sim.benchdata.served.scrapes import ENGINES, Series, names_read
from sim.infile import opened, status
from sim.message import Message, located, os_reason
from sim.units import HOURS_PER_DAY
from sim.watch.answer import moment
from sim.watch.observed import HOUR_S, LOOKBACK_S, STEP_S
from sim.watch.source import COMPLETED, POWER, LacksMetrics, Points, RestartedPoints, SourceError, refuse_mixture

ROTATED = r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}"
"""Pattern of the time that the file exporter puts before the extension of a rotated file."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""First bytes of compressed files."""
MOST_MISTAKES = 20
"""Most mistakes that an error lists."""
AHEAD_S = float(HOURS_PER_DAY * HOUR_S)
"""Time by which a sample may be ahead of this machine's clock [s]; one beyond would hide the hours until then."""
LATE_POINTS = 32
"""Latest points of a stream among which copies, and deltas that come late, are recognised."""
FIRST_LINES = 100
"""Lines in which the first point of a file is searched for."""
FIRST_POINT = re.compile(rb'"timeUnixNano"\s*:\s*"?(\d+)')
"""Pattern of the time of a point [ns]."""
OLD_S = 600.0
"""Least age of the newest sample that is reported [s]."""
MATCHER = re.compile(r'\s*([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
"""Label matcher of PromQL."""
UNREADABLE = (OSError, EOFError, zlib.error)
"""Errors of files that are missing, damaged or cut off."""
OTHER_KINDS = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceProfiles": "profiles"}
"""Key of an OTLP object -> its kind of data, where that is not metrics."""


class OtlpError(SourceError):
    """Error of OTLP files; the message has a line `file:line: mistake` per mistake."""

    skipped = True


def matcher_of(text: str) -> Callable[[Mapping[str, str]], bool]:
    r"""Return a function of labels: whether they match the label matchers *text*. Raises ValueError.

    >>> chosen = matcher_of('namespace="chat",model_name!~"llama.*"')
    >>> chosen({"namespace": "chat", "model_name": "qwen"}), chosen({"namespace": "chat", "model_name": "llama3"})
    (True, False)
    """
    rest = text.strip().strip("{}")
    found: list[tuple[str, bool, re.Pattern[str]]] = []
    while rest:
        match = MATCHER.match(rest)
        if match is None:
            raise ValueError(rest)
        label, operator, value = match.groups()
        value = re.sub(r"\\(.)", r"\1", value)
        try:
            pattern = re.compile(value if operator.endswith("~") else re.escape(value))
        except re.error:
            raise ValueError(rest) from None
        found.append((label, operator.startswith("="), pattern))
        rest = rest[match.end() :]
    return lambda labels: all(
        (pattern.fullmatch(labels.get(label, "")) is not None) == wanted for label, wanted, pattern in found
    )


@dataclass(slots=True)
class _Samples:
    """Samples of a series, at most one for each time of the grid: the last one before it."""

    at: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    restarts: list[float] = field(default_factory=list)
    """Times of the grid by which the counter had restarted [Unix s]."""
    grid_s: float = -inf
    """Time of the grid of the last sample [Unix s]."""
    total: float = 0.0
    """Sum of the deltas of a counter with delta temporality."""

    def add(self, at_s: float, value: float) -> None:
        """Add a sample that is later than all others."""
        if at_s <= self.grid_s:
            self.at[-1], self.values[-1] = at_s, value
        else:
            self.grid_s = _grid_time(at_s)
            self.at.append(at_s)
            self.values.append(value)

    def forget(self, before_s: float) -> None:
        """Drop the samples before *before_s* once they fill more than a day of the grid."""
        count = int(np.searchsorted(np.array(self.at), before_s))
        if count > HOURS_PER_DAY * HOUR_S // STEP_S:
            del self.at[:count], self.values[:count]
            self.restarts = [one for one in self.restarts if one >= before_s]

    def at_times(self, grid: np.ndarray[Any, Any]) -> Points:
        """Return the samples at the times *grid*, as a range query of Prometheus does."""
        times, values = np.array(self.at), np.array(self.values)
        place = np.searchsorted(times, grid, side="right") - 1
        known = (place >= 0) & (grid - times[place] < LOOKBACK_S) & ~np.isnan(values[place])
        points = dict(zip(grid[known].tolist(), values[place[known]].tolist(), strict=True))
        return RestartedPoints(points, self.restarts) if self.restarts else points


class Clash(Exception):
    """Error for points of two servers that have the same labels."""


@dataclass(slots=True)
class _Stream:
    """Points of one metric with one set of labels."""

    parts: dict[tuple[str, tuple[tuple[str, str], ...]], _Samples] = field(default_factory=dict)
    """Samples of each part, by its suffix and labels."""
    series: dict[Series, _Samples] = field(default_factory=dict)
    """Samples of the parts that are read."""
    last_s: float = -inf
    """Time of the last point [Unix s]."""
    start_s: float = 0.0
    """Start that the last point states [Unix s]."""
    recent: "deque[float]" = field(default_factory=lambda: deque(maxlen=LATE_POINTS))
    """Times of the latest points [Unix s]."""
    value: tuple[float, ...] = ()
    """Values of the parts of the last point, in order."""

    def add(self, point: OtlpPoint) -> None:
        """Add a point; copies are ignored, and so are points that come late, except deltas. Raises as `parts_of` does.

        Raises Clash where another server has a point at the same time.
        """
        if point.time_s <= self.last_s:
            self._add_late(point)
            return
        self.recent.append(point.time_s)
        if point.ended:
            for samples in self.parts.values():
                samples.add(point.time_s, nan)
        else:
            restarted = self._restarted(point)
            parts = list(parts_of(point))
            self.value = tuple(value for _, _, value in parts)
            for suffix, own, value in parts:
                samples = self.parts.get((suffix, own)) or self._new(point, suffix, own)
                if point.temporality == "delta":
                    samples.total += value
                    value = samples.total
                samples.add(point.time_s, value)
                if restarted:
                    samples.restarts.append(samples.grid_s)
            self.start_s = point.start_s
        self.last_s = point.time_s

    def _add_late(self, point: OtlpPoint) -> None:
        """Add a delta that comes after later ones to the last total; its interval is not counted yet.

        Raises Clash where the last point is of the same time and has other values.
        """
        if point.ended or point.kind == "gauge":
            return
        if point.time_s == self.last_s and self.value and self.value != tuple(one for _, _, one in parts_of(point)):
            raise Clash
        if point.temporality == "delta" and point.time_s not in self.recent and point.time_s > self.recent[0]:
            self.recent.append(point.time_s)
            for suffix, own, value in parts_of(point):
                if samples := self.parts.get((suffix, own)):
                    samples.total += value
                    samples.values[-1] += value

    def _new(self, point: OtlpPoint, suffix: str, own: tuple[tuple[str, str], ...]) -> _Samples:
        samples = self.parts[suffix, own] = _Samples()
        if (series := series_of(point, suffix, own)) is not None:
            self.series[series] = samples
        if point.temporality == "delta" and point.start_s > 0:
            samples.add(max(point.start_s, self.last_s), 0.0)
        return samples

    def _restarted(self, point: OtlpPoint) -> bool:
        """Return whether *point* states a start of its counter after the last point.

        A start at the time of the point itself does not count: a restarted collector states it for all counters.
        """
        after = -inf < self.last_s < point.start_s < point.time_s
        return after and point.temporality == "cumulative" and point.start_s != self.start_s


@dataclass(slots=True)
class _Progress:
    """Part of a file that was read."""

    read: int = 0
    """Number of bytes, after decompression."""
    lines: int = 0
    """Number of whole lines."""


class OtlpFiles:
    """Files of OTLP metrics, in JSON Lines, and the files that the exporter has rotated beside them.

    Parameters
    ----------
    paths
        Files as the exporter names them; a file may be compressed by gzip.
    match
        Label matchers of PromQL. Raises ValueError where they are none.
    keep_days
        Time before the newest sample that is kept in memory [days].
    clock
        Clock of this machine [Unix s].

    """

    def __init__(
        self,
        paths: Sequence[Path],
        match: str = "",
        keep_days: float = inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.paths, self.match, self._clock = tuple(paths), match, clock
        self._chosen, self._keep_s = matcher_of(match), (keep_days + 2) * HOURS_PER_DAY * HOUR_S
        self._streams: dict[Series, _Stream | None] = {}
        """Metric and labels -> its stream; None where the matchers do not choose it."""
        self._progress: dict[bytes, _Progress] = {}
        """Digest of a file's first line -> part that was read, under any name of the file."""
        self._seen: dict[Path, tuple[int, ...]] = {}
        """File -> device, inode, size and time of change when it was last read."""
        self._unfinished: list[str] = []
        """Files whose last line is incomplete."""
        self._newest_s = -inf

    @property
    def shown(self) -> str:
        """First file, for messages."""
        return str(self.paths[0])

    def now_s(self) -> float:
        """Read the new lines of the files, and return the time of the newest sample [Unix s].

        Raises LacksMetrics, or OtlpError with the mistakes of the new lines; these are not read again.
        """
        problems: list[tuple[str, int, str]] = []
        self._unfinished = []
        for path in self._by_time(problems):
            if len(problems) < MOST_MISTAKES:
                self._read_new(path, problems)
        for stream in self._streams.values():
            if stream is not None:
                for samples in stream.parts.values():
                    samples.forget(self._newest_s - self._keep_s)
        if problems:
            raise OtlpError(located(problems[:MOST_MISTAKES]))
        if self._newest_s == -inf:
            text = Message(
                "{file}: has no metrics of vLLM or SGLang: let the collector's prometheus receiver read their /metrics",
                self.shown,
            )
            if self.match:
                text = Message(
                    "{file}: has no metrics of vLLM or SGLang that --match {match!r} chooses: check its labels",
                    self.shown,
                    self.match,
                )
            raise LacksMetrics(text)
        return self._newest_s

    def clock_notes(self, now_s: float, here_s: float) -> list[str]:
        """Return notes on files with an unfinished last line, and on an old newest sample *now_s* [Unix s]."""
        notes: list[str] = [
            Message("{file}: the last line is not finished; it is read when it is", file) for file in self._unfinished
        ]
        if here_s - now_s > OLD_S:
            notes.append(Message("the newest sample of {file} is of {moment} UTC", self.shown, moment(int(now_s))))
        return notes

    def engine_series(self, start_s: float, end_s: float, step_s: float, every: bool = True) -> dict[Series, Points]:
        """Return the series of vLLM or SGLang from *start_s* to *end_s*, sampled each *step_s*.

        Without *every*, the buckets of all histograms but TTFT are left out.
        """
        names = {f"{engine}:{name}" for engine, names in names_read(every).items() for name in names}
        return self._between(names.__contains__, start_s, end_s, step_s)

    def gpu_power(self, start_s: float, end_s: float, step_s: float) -> list[Points]:
        """Return the power of each GPU [W]; empty without DCGM's gauge."""
        return [*self._between(POWER.__eq__, start_s, end_s, step_s).values()]

    def first_s(self, start_s: float, end_s: float) -> float | None:
        """Return the time of the first sample in a span, to an hour [Unix s]; None without one. Raises MixedSeries."""
        counts = {f"{engine}:{COMPLETED}" for engine in ENGINES}
        found = {series: one for series, one in self._series() if series[0] in counts}
        refuse_mixture(found, self.shown)
        firsts = [next((at_s for at_s in one.at if start_s <= at_s <= end_s), inf) for one in found.values()]
        first_s = min(firsts, default=inf)
        return None if first_s == inf else min(end_s, start_s + HOUR_S * ceil((first_s - start_s) / HOUR_S))

    def _series(self) -> Iterator[tuple[Series, _Samples]]:
        for stream in self._streams.values():
            if stream is not None:
                yield from stream.series.items()

    def _between(
        self, wanted: Callable[[str], bool], start_s: float, end_s: float, step_s: float
    ) -> dict[Series, Points]:
        grid = start_s + step_s * np.arange(int((end_s - start_s) // step_s) + 1)
        found = {series: one.at_times(grid) for series, one in self._series() if one.at and wanted(series[0])}
        return {series: points for series, points in found.items() if points}

    def _by_time(self, problems: list[tuple[str, int, str]]) -> list[Path]:
        """Return the files that have changed, in order of their first points."""
        found: dict[Path, float] = {}
        for path in dict.fromkeys(one for given in self.paths for one in (*_rotated(given), given)):
            try:
                about = status(path)
                state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
                if self._seen.get(path) != state:
                    with _unpacked(path) as file:
                        first = FIRST_POINT.search(_first_export(file))
                    found[path] = float(first[1]) if first else inf
                    self._seen[path] = state
            except UNREADABLE as error:
                if not (isinstance(error, FileNotFoundError) and self._progress):  # it is being rotated
                    problems.append((str(path), 0, Message("cannot be read: {reason}", _reason(error))))
        return sorted(found, key=found.__getitem__)

    def _read_new(self, path: Path, problems: list[tuple[str, int, str]]) -> None:
        """Read the lines of a file that were not read before."""
        try:
            with _unpacked(path) as file:
                first = _first_export(file)
                if first[:4] == ZSTD or b"\0" in first[:4]:
                    text = "is not JSON: set `format: json`, and no `compression`, in the collector's file exporter"
                    problems.append((str(path), 0, text))
                    return
                done = self._progress.setdefault(sha256(first.strip()).digest(), _Progress())
                file.seek(done.read)
                for line in file:
                    if not self._read_line(path, done.lines + 1, line, problems):
                        return
                    done.read += len(line)
                    done.lines += line.endswith(b"\n")
        except UNREADABLE as error:
            problems.append((str(path), 0, Message("cannot be read: {reason}", _reason(error))))

    def _read_line(self, path: Path, number: int, line: bytes, problems: list[tuple[str, int, str]]) -> bool:
        """Read a line; return False where the rest of the file is not to be read."""
        if line.isspace():
            return True
        text: str = ""
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            if not line.endswith(b"\n"):
                self._unfinished.append(str(path))
                return False
            text = "is not JSON"
        else:
            other = next(
                (kind for key, kind in OTHER_KINDS.items() if isinstance(document, dict) and key in document), ""
            )
            if other:
                refusal = Message("has {kind}, not metrics: name the files of a pipeline of metrics", other)
                if all((file, said) != (str(path), refusal) for file, _, said in problems):
                    problems.append((str(path), number, refusal))
                return True
            if are_metrics(document):
                try:
                    self._add(document)
                except Clash:
                    text = (
                        "has two servers with the same labels: keep service.instance.id or k8s.pod.name of the resource"
                    )
                except MALFORMED:
                    text = NOT_OTLP
            else:
                text = 'is no export of OTLP metrics: {"resourceMetrics": [...]}'
        if text:
            problems.append((str(path), number, text))
        return len(problems) < MOST_MISTAKES

    def _add(self, document: Any) -> None:
        """Add the points of an OTLP object. Raises an error of MALFORMED where it is not in OTLP's form."""
        for point in points_in(document, _is_read):
            if point.kind != "gauge" and not point.temporality:
                raise ValueError("temporality")
            if point.time_s > self._clock() + AHEAD_S:
                raise ValueError("time")
            key = (point.name, point.labels)
            if key not in self._streams:
                self._streams[key] = _Stream() if self._chosen(dict(point.labels)) else None
            if (stream := self._streams[key]) is not None:
                stream.add(point)
                self._newest_s = max(self._newest_s, point.time_s)


def _is_read(name: str) -> bool:
    return name == POWER or is_engine_metric(name)


def _grid_time(at_s: float) -> float:
    """Return the first time of the grid that is not before *at_s* [Unix s]."""
    return STEP_S * ceil(at_s / STEP_S)


def _rotated(path: Path) -> list[Path]:
    """Return the files that the exporter has rotated beside *path*, the oldest first."""
    own = re.compile(re.escape(path.stem) + ROTATED + re.escape(path.suffix) + r"(\.gz)?")
    with suppress(OSError):
        return sorted(one for one in path.parent.iterdir() if own.fullmatch(one.name))
    return []


def _first_export(file: IO[bytes]) -> bytes:
    """Return the first line with a point, or the first line where the first FIRST_LINES have none."""
    lines = [*islice(file, FIRST_LINES)]
    return next((line for line in lines if FIRST_POINT.search(line)), lines[0] if lines else b"")


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if it is gzip. Reading raises UNREADABLE."""
    with opened(path) as file:
        packed = file.read(2) == GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        with gzip.open(file) as inner:
            yield inner  # type: ignore[misc]


def _reason(error: Exception) -> str:
    return os_reason(error) if isinstance(error, OSError) else "it is damaged or cut off"
