"""Files that `gpufleet calibrate` has written, read back with line numbers for what is wrong in them."""

from functools import cache
from pathlib import Path

from pydantic import ValidationError

from sim.infile import status
from sim.scenario.reading.errors import InputError, ScenarioErrors, complaints, dotted
from sim.steptime import Calibration
from sim.yamlio import YamlError, read


def load_calibration(path: str) -> Calibration:
    """The calibration in the file *path*, read once as long as it stays the same. Raises ScenarioErrors."""
    file = Path(path)
    try:
        changed_ns = status(file).st_mtime_ns
    except OSError:  # reading it says why
        changed_ns = 0
    return _read(file, changed_ns)


@cache
def _read(path: Path, changed_ns: int) -> Calibration:
    shown = path
    if shown.is_relative_to(Path.cwd()):
        shown = shown.relative_to(Path.cwd())
    try:
        document = read(path)
    except YamlError as error:
        raise ScenarioErrors([InputError(str(shown), error.line, "", error.message)]) from None
    try:
        return Calibration.model_validate(document.data)
    except ValidationError as error:
        found = complaints(error, Calibration, document.data)
        raise ScenarioErrors(
            InputError(str(shown), document.line(one.place), dotted(one.place), one.message) for one in found
        ) from None
