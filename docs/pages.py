"""Generated pages and tables of the site: start page, catalogue, keys of a scenario, columns of summary.csv.

MkDocs calls the functions whose names begin with `on_`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from sim.catalogue.catalog import load_catalog
from sim.jobs.outcome import COLUMNS as QUEUE_COLUMNS
from sim.jobs.schema import QueueScenario
from sim.report.catalogue import COLUMNS, listing
from sim.scenario.template import SCHEMA_ID, documented, schema_text
from sim.study.metrics import columns
from sim.training.outcome import COLUMNS as JOB_COLUMNS
from sim.training.schema import JobScenario

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    *("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *("benchmarks/README.md", "benchmarks/fit/README.md", "benchmarks/fit/unseen.md"),
    *("benchmarks/coverage.md", "benchmarks/published.md", "benchmarks/speculative.md"),
    *("benchmarks/fleets.md", "benchmarks/money.md", "benchmarks/offload.md", "benchmarks/watch.md"),
)
"""Pages of the site outside docs/, as paths from the root of the repository."""
HEADINGS = {"gpus": "GPUs"}
CELL_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>[^\n]*</t[dh]>)")
BREAKS = re.compile(r"(?<=[a-z0-9][_/])(?=\w)")
COLUMNS_MARK = "<!-- columns of summary.csv -->"
REFERRING = re.compile(r"^.* scenario reference\b.*$", re.MULTILINE)
WORK_MARKS = {"<!-- columns of a job -->": JOB_COLUMNS, "<!-- columns of a queue -->": QUEUE_COLUMNS}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to *files*."""
    pages = {"index.md": _start(), "reference/catalogue.md": _catalogue(), "reference/scenario.md": _scenario()}
    pages |= {name: _outside(ROOT / name) for name in OUTSIDE}
    pages[SCHEMA_ID.partition("/gpufleet/")[2]] = schema_text()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return *markdown* with links between pages of the site, and with tables of columns in place of their marks."""
    found = re.sub(r"\[([^\]]*)\]\(\.\./benchmarks/[^)]*(?<!\.md)\)", r"\1", markdown)  # no page of the site
    for name in OUTSIDE:
        found = found.replace(f"](../{name}", f"]({name}")
    found = found.replace(COLUMNS_MARK, "\n".join(_columns()))
    for mark, declared in WORK_MARKS.items():
        found = found.replace(mark, "\n".join(_work_columns(declared)))
    return REFERRING.sub(lambda line: _sections(line[0]), found)


def _sections(line: str) -> str:
    """Return *line* with the sections of a scenario that it names as links to the generated reference."""
    return re.sub(r"`([A-Z][A-Za-z]+)`", lambda name: f"[{name[0]}](reference/scenario.md#{name[1].lower()})", line)


def on_page_content(html: str, **_: Any) -> str:
    """Return *html* with places for line breaks behind the underscores and slashes of code in tables."""
    return CELL_CODE.sub(lambda found: BREAKS.sub("<wbr>", found[0]), html)


def _start() -> str:
    """Return README.md with links relative to docs/."""
    return (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")


def _outside(path: Path) -> str:
    """Return the page *path* with links to docs/ as links of the site, and with links to files as text."""
    text = path.read_text(encoding="utf-8")
    up = "../" * len(path.relative_to(ROOT).parents[:-1])
    text = re.sub(rf"\]\({re.escape(up)}docs/", f"]({up}", text)
    return re.sub(r"\[([^\]]*)\]\((?!http|#)[^)]*(?<!\.md)\)", r"\1", text)


def _catalogue() -> str:
    """Return the catalogue page: a table per kind, as `gpufleet list` prints it."""
    catalog = load_catalog()
    return "\n".join(
        [
            "# Catalogue",
            "",
            "The tables of `gpufleet list`. `gpufleet show gpu rtx-4090` prints every value with source and kind.",
            *(line for kind in COLUMNS for line in _table(kind, listing(catalog, kind))),
        ]
    )


def _columns() -> Iterator[str]:
    """Yield the table of the registered columns of summary.csv."""
    yield _row(("Column", "Unit", "Meaning", "Over replications", "Changed by `gpufleet price`"))
    yield _row(["---"] * 5)
    for one in columns.COLUMNS:
        moved = "yes" if one.depends_on_prices else ""
        yield _row((f"`{one.name}`", one.unit, one.meaning, one.average.words, moved))


def _work_columns(declared: Any) -> Iterator[str]:
    """Yield the table of the *declared* columns of a job's or a queue's summary.csv."""
    yield _row(("Column", "Unit", "Meaning"))
    yield _row(["---"] * 3)
    for one in declared:
        yield _row((f"`{one.name}`", one.unit, one.meaning))


def _table(kind: str, found: Any) -> Iterator[str]:
    yield from ("", f"## {HEADINGS.get(kind, kind.capitalize())}", "")
    yield _row(found.heads)
    yield _row("---" for _ in found.heads)
    yield from (_row(row) for row in found.rows)


def _row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _scenario() -> str:
    """Return the page of all scenario keys, from the schema that `gpufleet init` writes."""
    schema = json.loads(schema_text())
    lines = [
        "# Scenario",
        "",
        "Every key of a scenario file. `gpufleet init` writes a commented example and this schema for editors.",
        "",
    ]
    parts = {"The file": schema, **dict(sorted(schema["$defs"].items()))}
    for title, kind in {"A file with a job": JobScenario, "A file with jobs": QueueScenario}.items():
        found = documented(kind)
        parts |= {title: found} | {name: part for name, part in sorted(found["$defs"].items()) if name not in parts}
    for name, part in parts.items():
        if "properties" in part:
            lines += ["", f"## {name}", "", _inline(part.get("description", "")) if part is not schema else "", ""]
            lines += [_row(("Key", "Value", "Default", "Meaning")), _row(["---"] * 4)]
            required = part.get("required", [])
            lines += [_key(key, field, key in required) for key, field in part["properties"].items()]
    return "\n".join(lines)


def _key(key: str, field: dict[str, Any], required: bool) -> str:
    stated = field.get("default")
    if isinstance(stated, dict):
        stated = {name: value for name, value in stated.items() if value is not None}
    default = "required" if required else "" if stated is None else f"`{json.dumps(stated)}`"
    return _row((f"`{key}`", _type(field), default, _inline(field.get("description", ""))))


def _inline(text: str) -> str:
    """Return the docstring *text* as one line of a table."""
    return " ".join(text.split())


def _type(field: dict[str, Any]) -> str:
    """Return the values that the JSON schema *field* allows, in words, with links to sections."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{re.sub(r'(?<=[a-z])(?=[A-Z])', '<wbr>', name)}](#{name.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if options := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in options if one.get("type") != "null"))
    if field.get("type") == "array":
        items = field.get("items") or {}
        return f"list of {_type(items)}" if items else "list"
    if field.get("type") == "object":
        value = field.get("additionalProperties")
        return f"mapping to {_type(value)}" if isinstance(value, dict) and value else "mapping"
    return f"{field.get('type', 'any')}{_bounds(field)}"


def _bounds(field: dict[str, Any]) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    found = [f"{sign} {field[name]:g}" for name, sign in signs.items() if isinstance(field.get(name), int | float)]
    return f" {' and '.join(found)}" if found else ""
