"""Local time at a site during a simulation: one clock for tariffs, grid intensity, schedules and meters.

Simulated seconds are real seconds. In a time zone with summer time, the day on which it begins has 23 hours, the day on
which it ends 25.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import pairwise
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator

from sim.message import Message
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR

YEARS = range(1900, 2201)
"""Years in which a simulation may start."""
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


@cache
def _zones() -> list[str]:
    """Return the names of the machine's time zones; to list them takes longer than most checks."""
    return sorted(available_timezones())


def _known_zone(value: Any) -> Any:
    zones = _zones()
    if value in zones:
        return value
    if not zones:
        raise ValueError("this machine has no time zone database: install the package tzdata")
    near = get_close_matches(str(value), zones, n=1)
    hint = Message("did you mean {near}?", near[0]) if near else "the IANA database has names such as Europe/Berlin"
    raise ValueError(Message("unknown time zone {value!r}; {hint}", value, hint))


def _written_out(value: Any) -> Any:
    if isinstance(value, str | datetime):
        return value
    raise ValueError(Message("a date and a time are needed, such as 2026-07-01T08:00:00, not {value!r}", value))


def _within_reach(value: datetime) -> datetime:
    if not YEARS.start <= value.year < YEARS.stop:
        raise ValueError(
            Message("must be in the years {start} to {stop}, not in {year}", YEARS.start, YEARS.stop - 1, value.year)
        )
    return value


TimeZone = Annotated[str, BeforeValidator(_known_zone)]
"""Name of a time zone in the IANA database."""
Moment = Annotated[datetime, BeforeValidator(_written_out), AfterValidator(_within_reach)]
"""Local time, optionally with its offset from UTC."""


class ClockError(ValueError):
    """Local time that does not exist or is ambiguous because of summer time."""


@dataclass(frozen=True, slots=True)
class SiteClock:
    """Clock that shows local time at the site.

    >>> SiteClock.of(datetime(2026, 3, 29, 1, 30), "Europe/Berlin").at(3600.0).isoformat()
    '2026-03-29T03:30:00+02:00'
    """

    starts_at: datetime
    """Local time at simulated time 0, with its time zone; without one, every day has 24 hours."""
    timezone: str | None = None
    """Name of the time zone; clocks of two zones differ even if they show the same moment."""

    @classmethod
    def of(cls, starts_at: datetime, timezone: str | None) -> "SiteClock":
        """Return the clock that shows *starts_at* in *timezone* at simulated time 0.

        An offset in *starts_at* determines the moment; without an offset it is local time. Without *timezone* the
        offset is dropped and every day has 24 hours. Raises ClockError for a local time that summer time skips or
        repeats.
        """
        if timezone is None:
            return cls(starts_at.replace(tzinfo=None))
        zone = ZoneInfo(timezone)
        if starts_at.tzinfo is not None:
            return cls(starts_at.astimezone(zone), timezone)
        first, second = (starts_at.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != starts_at:
            raise ClockError(
                Message(
                    "{date} does not exist in {timezone}: clocks are set forward then", starts_at.isoformat(), timezone
                )
            )
        if first.utcoffset() != second.utcoffset():
            choice = Message("write {first} or {second}", first.isoformat(), second.isoformat())
            raise ClockError(
                Message("{date} comes twice in {timezone}: {choice}", starts_at.isoformat(), timezone, choice)
            )
        return cls(first, timezone)

    def at(self, at_s: float) -> datetime:
        """Return the local time at simulated time *at_s* [s]."""
        zone = self.starts_at.tzinfo
        if zone is None:
            return self.starts_at + timedelta(seconds=at_s)
        return (self.starts_at.astimezone(UTC) + timedelta(seconds=at_s)).astimezone(zone)

    def hour_at(self, at_s: float) -> tuple[date, int, int]:
        """Return the hour that the clock shows at *at_s*, as (day, hour, fold); fold is 1 for a repeated hour."""
        at = self.at(at_s)
        return at.date(), at.hour, at.fold

    def next_hour_s(self, after_s: float) -> float:
        """Return the simulated time of the first full hour on the clock after *after_s* [s]."""
        # summer time may shift the full hours themselves (by half an hour on Lord Howe Island)
        into_hour_s = _into_hour(self.starts_at).total_seconds()
        shifted_s = (_offset(self.at(after_s)) - _offset(self.starts_at)).total_seconds()
        first_s = SECONDS_PER_HOUR - into_hour_s
        if shifted_s % SECONDS_PER_HOUR:
            first_s = SECONDS_PER_HOUR - (into_hour_s + shifted_s) % SECONDS_PER_HOUR
        return first_s + max(0.0, (after_s - first_s) // SECONDS_PER_HOUR + 1) * SECONDS_PER_HOUR

    def crosses_the_hour(self, start_s: float, end_s: float) -> bool:
        """Return whether [*start_s*, *end_s*] crosses a full hour on the clock, so that its price may change within."""
        real_s = timedelta(seconds=end_s) - timedelta(seconds=start_s)
        return real_s > _HOUR - _into_hour(self.at(start_s))

    def second_of_day(self, at_s: float) -> float:
        """Return the seconds since midnight that the clock shows at *at_s* [s]."""
        at = self.at(at_s)
        return 3600.0 * at.hour + 60.0 * at.minute + at.second + at.microsecond / 1e6

    def times_shown_s(self, minutes: Iterable[int], until_s: float) -> list[float]:
        """Return the times in [0, *until_s*) at which the clock shows or skips one of *minutes* after midnight [s]."""
        zone, count = self.starts_at.tzinfo, (self.at(until_s).date() - self.starts_at.date()).days + 1
        midnight = datetime.combine(self.starts_at.date(), time())
        found = set()
        for wanted in [midnight + timedelta(days=day, minutes=at) for at in set(minutes) for day in range(count)]:
            for fold in (0, 1):
                local = wanted.replace(tzinfo=zone, fold=fold)
                if zone is not None and local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wanted:
                    local = local.replace(minute=0, fold=0)  # clocks are put forward at a full hour
                start = self.starts_at if zone is None else self.starts_at.astimezone(UTC)
                found.add((local - start).total_seconds())
        return sorted(at_s for at_s in found if 0 <= at_s < until_s)

    @property
    def days(self) -> tuple[tuple[date, tuple[float, ...]], ...]:
        """Days of the year in which the simulation starts, each with the duration of its 24 clock hours [h]."""
        return _days(self.starts_at.year, self.starts_at.tzinfo)


def _offset(at: datetime) -> timedelta:
    return at.utcoffset() or timedelta()


def _into_hour(at: datetime) -> timedelta:
    return timedelta(minutes=at.minute, seconds=at.second, microseconds=at.microsecond)


@lru_cache(maxsize=64)
def _days(year: int, zone: tzinfo | None) -> tuple[tuple[date, tuple[float, ...]], ...]:
    midnights = [datetime(year, 1, 1) + timedelta(days=n) for n in range(367)]
    return tuple(
        (midnight.date(), _lengths(midnight, after, zone))
        for midnight, after in pairwise(midnights)
        if midnight.year == year
    )


def _lengths(midnight: datetime, after: datetime, zone: tzinfo | None) -> tuple[float, ...]:
    """Return the duration of each clock hour between two midnights [h]: 0 if skipped, 2 if repeated."""
    start, end = (at.replace(tzinfo=zone) for at in (midnight, after))
    if start.utcoffset() == end.utcoffset():
        return (1.0,) * HOURS_PER_DAY
    minutes = [0] * HOURS_PER_DAY
    at, stop = start.astimezone(UTC), end.astimezone(UTC)
    while at < stop:
        minutes[at.astimezone(zone).hour] += 1
        at += _MINUTE
    return tuple(count / 60 for count in minutes)


MIDNIGHT = SiteClock(datetime(2001, 1, 1))
"""Clock of a simulation without a start time."""
