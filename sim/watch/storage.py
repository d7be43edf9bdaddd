"""Storage of a watched fleet: `watch.sqlite` with the hours that were read, alarms, and calibrations.

Each round is one transaction, so that a killed command leaves the state after an earlier round, and the next command
continues from its last hour.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sim.message import Message
from sim.watch.drift import Alarm
from sim.watch.observed import HOUR_S, HourObserved

FILE = "watch.sqlite"
VERSION = 1
"""Layout of the tables (`PRAGMA user_version`)."""
COLUMNS = [one.name for one in fields(HourObserved)]
TABLES = f"""
CREATE TABLE hours ({COLUMNS[0]} INTEGER PRIMARY KEY, {", ".join(f"{name} REAL" for name in COLUMNS[1:])});
CREATE TABLE calibrations (since INTEGER PRIMARY KEY, made INTEGER NOT NULL, text TEXT NOT NULL, note TEXT NOT NULL);
CREATE TABLE alarms (metric TEXT NOT NULL, since INTEGER NOT NULL, raised INTEGER NOT NULL, ratio REAL NOT NULL,
  PRIMARY KEY (metric, raised));
CREATE TABLE source (matchers TEXT NOT NULL);
"""


class StorageError(Exception):
    """Error for a file that is no storage of this program, or that holds other series."""


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """Calibration of the scenario to the hours from `since` on."""

    since: int
    """First hour to which it applies [Unix s]."""
    made: int
    """Last hour that it was fitted to [Unix s]."""
    text: str
    """Text of the calibration file; empty where the fit failed."""
    note: str
    """Reason why there is no calibration; empty if there is one."""


class Storage:
    """Hours and calibrations in the file *path*, which is created where it is missing.

    Raises
    ------
    StorageError
        The file is not of this program, is damaged, or holds the hours of other *matchers*.

    """

    def __init__(self, path: Path, matchers: str) -> None:
        self._path = path
        try:
            with self._open() as database:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if version == 0 and tables == 0:
                    for statement in filter(str.strip, TABLES.split(";")):
                        database.execute(statement)
                    database.execute("INSERT INTO source VALUES (?)", (matchers,))
                    database.execute(f"PRAGMA user_version = {VERSION}")
                elif version != VERSION:
                    raise StorageError(
                        Message("{path}: is not a file of this gpufleet watch; name another --out", path)
                    )
                database.execute("UPDATE source SET matchers = ? WHERE NOT EXISTS (SELECT * FROM hours)", (matchers,))
                (known,) = database.execute("SELECT matchers FROM source").fetchone()
        except sqlite3.DatabaseError as error:
            raise StorageError(Message("{path}: cannot be used: {reason}", path, str(error))) from None
        if known != matchers:
            raise StorageError(
                Message(
                    "{path}: holds the hours of --match {known!r}, not {new!r}; name another --out",
                    path,
                    known,
                    matchers,
                )
            )

    @property
    def end(self) -> int:
        """End of the last hour [Unix s]; 0 without one."""
        with self._open() as database:
            (last,) = database.execute("SELECT max(hour) FROM hours").fetchone()
        return 0 if last is None else int(last) + HOUR_S

    def hours(self) -> list[HourObserved]:
        """Return all hours in order."""
        with self._open() as database:
            rows = database.execute(f"SELECT {', '.join(COLUMNS)} FROM hours ORDER BY hour").fetchall()
        return [HourObserved(int(row[0]), row[1], row[2], int(row[3]), *row[4:]) for row in rows]

    def keep(self, hours: Iterable[HourObserved]) -> None:
        """Store *hours* in one transaction; an hour that is stored already is replaced."""
        places = ", ".join("?" * len(COLUMNS))
        with self._open() as database:
            database.executemany(
                f"INSERT OR REPLACE INTO hours VALUES ({places})", [tuple(asdict(one).values()) for one in hours]
            )

    def calibrations(self) -> list[StoredCalibration]:
        """Return the calibrations in order of the hour from which they apply."""
        with self._open() as database:
            rows = database.execute("SELECT since, made, text, note FROM calibrations ORDER BY since").fetchall()
        return [StoredCalibration(*row) for row in rows]

    def keep_calibration(self, one: StoredCalibration) -> None:
        """Store a calibration."""
        with self._open() as database:
            database.execute(
                "INSERT OR REPLACE INTO calibrations VALUES (?, ?, ?, ?)", (one.since, one.made, one.text, one.note)
            )

    def alarms(self) -> list[Alarm]:
        """Return the alarms in the order in which they were raised."""
        with self._open() as database:
            rows = database.execute(
                "SELECT metric, since, raised, ratio FROM alarms ORDER BY raised, metric"
            ).fetchall()
        return [Alarm(*row) for row in rows]

    def keep_alarms(self, alarms: Iterable[Alarm]) -> None:
        """Store *alarms*; an alarm that is stored already stays as it is."""
        with self._open() as database:
            database.executemany(
                "INSERT OR IGNORE INTO alarms VALUES (?, ?, ?, ?)",
                [(one.metric, one.since, one.raised, one.ratio) for one in alarms],
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction."""
        with closing(sqlite3.connect(self._path, timeout=30.0, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
