"""Files of actual payments, and their mistakes."""

from pathlib import Path

import pytest

from sim.cost.actuals import Actuals, ActualsError

DATES = ["2027-01", "2027-02"]


def read(folder: Path, text: str, fleets: tuple[str, ...] = ("a",)) -> Actuals:
    file = folder / "actuals.csv"
    file.write_text(text)
    return Actuals(path=str(file)).read(DATES, fleets)


def test_rows_have_a_fleet_where_there_are_several(tmp_path: Path) -> None:
    [one] = read(tmp_path, "date,line,amount_usd,quantity\n2027-02,energy,120.5,\n")
    assert one == ("a", "2027-02", "energy", 120.5, None)
    [two] = read(tmp_path, "fleet,date,line,amount_usd,quantity\nb,2027-01,staff,9,2\n", ("a", "b"))
    assert (two.fleet, two.quantity) == ("b", 2.0)


def test_all_mistakes_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    rows = ["fleet,date,line,amount_usd", "a,2027-03,energy,1", "c,2027-01,enrgy,many", "a,2027-01,staff,1"]
    with pytest.raises(ActualsError) as caught:
        read(tmp_path, "\n".join([*rows, "a,2027-01,staff,2"]), ("a", "b"))
    lines = [line for line, _ in caught.value.errors]
    texts = " ".join(str(text) for _, text in caught.value.errors)
    assert lines == [2, 3, 3, 3, 5]
    for what in ("unknown date", "unknown fleet 'c'", "did you mean energy?", "'many': a number", "of line 4"):
        assert what in texts


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("date,line\n", "column amount_usd is missing"),
        ("date,line,amount_usd,price\n", "unknown column price"),
        ("date,line,amount_usd\n2027-01,energy,1,800\n", "more cells than the first line"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_of_payments(tmp_path: Path, text: str | None, what: str) -> None:
    with pytest.raises(ActualsError, match=what):
        read(tmp_path, text) if text is not None else Actuals(path=str(tmp_path / "no.csv")).read(DATES, ["a"])
