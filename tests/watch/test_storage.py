"""watch.sqlite: all of a round or nothing, and files that are refused."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.watch.drift import Alarm
from sim.watch.observed import HourObserved
from sim.watch.storage import Storage, StorageError, StoredCalibration


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    hour = HourObserved(3600, 3600.0, 1.0, 0, 5.0, 5.0, ttft_s_mean=0.25)
    alarm, calibration = Alarm("ttft_s_mean", 0, 3600, 1.5), StoredCalibration(0, 3600, "gpu: l40s\n", "")
    with_all = Storage(tmp_path / "watch.sqlite", "")
    with_all.keep([hour])
    with_all.keep([hour])
    with_all.keep_alarms([alarm, alarm])
    with_all.keep_calibration(calibration)
    again = Storage(tmp_path / "watch.sqlite", "")
    assert (again.hours(), again.alarms(), again.calibrations()) == ([hour], [alarm], [calibration])


def test_a_round_that_does_not_end_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[HourObserved]:
        yield HourObserved(0, 3600.0)
        raise KeyboardInterrupt

    storage = Storage(tmp_path / "watch.sqlite", "")
    with pytest.raises(KeyboardInterrupt):
        storage.keep(broken())
    assert storage.hours() == []


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    Storage(tmp_path / "one.sqlite", 'job="a"')
    Storage(tmp_path / "one.sqlite", "").keep([HourObserved(0, 3600.0)])  # no hours were read with the first matchers
    with pytest.raises(StorageError, match="--match"):
        Storage(tmp_path / "one.sqlite", 'job="b"')
    with sqlite3.connect(tmp_path / "other.sqlite") as database:
        database.execute("CREATE TABLE t (a)")
    database.close()
    (tmp_path / "text").write_text("no database" * 100)
    for name in ("other.sqlite", "text"):
        with pytest.raises(StorageError):
            Storage(tmp_path / name, "")
