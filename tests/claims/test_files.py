"""The shipped claims: every file is sound, and docs/claims.md and docs/claims/ are written from these files."""

import csv
import re
from pathlib import Path

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.claims.files import claim_files, read_claim
from sim.claims.report import claim_rows, rendered_claim
from sim.claims.verdict import check_claims, digest_of, effort

IDS = sorted(claim_files())
PAGES = "docs/claims"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.mark.parametrize("name", IDS)
def test_every_file_is_sound(name: str, catalog: Catalog) -> None:
    path = claim_files()[name]
    claim, question = read_claim(path, catalog)
    assert question.endswith("?")
    assert claim.reason.endswith(".")
    assert claim.order()  # no circle
    used = {part for one in claim.parts for part in one.named.values()}
    told = {name for text in (claim.reason, *claim.notes) for name in re.findall(r"\{([a-z0-9_]+)", text)}
    needed = {one for spec in claim.figures.values() for one in _of(spec)}
    assert set(claim.figures) == used | told | needed, "a figure that nothing uses"


def _of(spec) -> list[str]:
    given = getattr(spec, "of", ())
    named = given.values() if isinstance(given, dict) else given if isinstance(given, tuple) else ()
    return [one for one in named if isinstance(one, str)]


def test_the_pages_are_of_these_files(root: Path) -> None:
    """`gpufleet claims` writes them; docs/extending.md has the command that copies them."""
    stated = re.compile(r"^File: `scenarios/claims/(.*)\.yaml` <!-- (\w+) -->$", re.MULTILINE)
    pages = {page.stem: page.read_text() for page in (root / PAGES).glob("*.md")}
    found = {name: stated.findall(page) for name, page in pages.items()}
    assert found == {name: [(path.stem, digest_of(path))] for name, path in claim_files().items()}


def test_the_index_has_a_row_for_every_claim(root: Path) -> None:
    index = (root / f"{PAGES}.md").read_text()
    rows = {row[1]: row[0] for row in re.findall(r"^(\| \[(C\d+)\]\(claims/\2\.md\) .*)$", index, re.MULTILINE)}
    verdicts = re.compile(r"Verdict: \*\*(.*)\*\*\.")
    assert list(rows) == IDS
    for name, row in rows.items():
        (verdict,) = verdicts.findall((root / PAGES / f"{name}.md").read_text())
        assert row.endswith(f"| {verdict} |"), name


@pytest.mark.slow
def test_cheap_claims_come_to_what_the_pages_say(root: Path, catalog: Catalog) -> None:
    files = {name: path for name, path in claim_files().items() if not effort(path, catalog)}
    assert len(files) >= 10
    index = (root / f"{PAGES}.md").read_text().replace(",", "")
    for answer in check_claims(files, catalog, 1, lambda *_: None):
        assert (root / PAGES / f"{answer.id}.md").read_text() == rendered_claim(answer), answer.id
        (row,) = claim_rows([answer])
        assert f"| {row['claimed']} | {row['computed']} |" in index, answer.id


@pytest.mark.slow
def test_two_claims_from_end_to_end(gpufleet, tmp_path: Path) -> None:
    done = gpufleet("claims", "c04", "C09", "--out", "answer", "--workers", "1", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader((tmp_path / "answer" / "claims.csv").read_text().splitlines()))
    assert list(rows[0]) == ["id", "verdict", "claimed", "computed", "unit", "reason", "scenario"]
    assert [(row["id"], row["verdict"]) for row in rows] == [("C04", "arithmetic error"), ("C09", "holds in part")]
    assert (rows[0]["claimed"], rows[0]["computed"], rows[0]["unit"]) == ("1.07", "3.42", "GB")
    assert rows[1]["scenario"] == "claims/c09-70b-half-precision-on-4090"
    assert "3,422,552,064 bytes" in rows[0]["reason"]
    assert "[C04](C04.md)" in (tmp_path / "answer" / "claims.md").read_text()
    assert "| the product of the example |" in (tmp_path / "answer" / "C04.md").read_text()
    page = (tmp_path / "answer" / "claims.html").read_text()
    assert page.index("arithmetic error</span> C04") < page.index("holds in part</span> C09")
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
def test_an_unknown_claim_is_named_with_its_neighbour(gpufleet, tmp_path: Path) -> None:
    done = gpufleet("claims", "C4", "C99x", "--out", "answer")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("there is no claim 'C4'; did you mean C")
    assert second.startswith("there is no claim 'C99x'")
    assert not (tmp_path / "answer").exists()


def test_a_claim_of_figures_alone_is_no_scenario_to_run(gpufleet) -> None:
    done = gpufleet("run", "claims/c04-activation-memory")
    assert done.returncode == 2
    assert "workload: is missing" in done.stderr
