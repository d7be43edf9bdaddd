"""`gpufleet init`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared.common import app, bad_input_told, fail, show_all


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the new scenario.")] = "scenario",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a commented scenario NAME.yaml, and a JSON schema with which editors complete and check it."""
    with bad_input_told():
        from sim.scenario.reading.template import SCHEMA_FILE, schema_text, template

        target = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        schema = target.with_name(SCHEMA_FILE)
        if target.exists() and not force:
            fail(f"{target}: exists; --force overwrites it")
        try:
            target.write_text(template(target.stem), encoding="utf-8")
            schema.write_text(schema_text(), encoding="utf-8")
        except OSError as error:
            fail(f"{error.filename}: cannot be written: {(error.strerror or str(error)).lower()}")
    show_all(f"wrote {target} and {schema}; look at it with: gpufleet check {target}")
