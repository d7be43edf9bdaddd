"""Files that a user names. A pipe or a device is refused: to read it could take for ever, and it reads but once."""

import json
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Any


def opened(path: Path | str, mode: str = "rb", **how: Any) -> IO[Any]:
    """Opens a regular file to read; *how* goes to `open`. Raises OSError, also for a pipe, a socket or a device."""
    file = Path(path)
    kind = file.stat().st_mode
    if not S_ISREG(kind) and not S_ISDIR(kind):  # of a folder `open` says so itself
        raise OSError(None, "it is no regular file", str(path))
    return file.open(mode, **how)


def json_objects(text: str) -> list[Any]:
    """The objects of a JSON document (a list has several), or of one a line. Raises JSONDecodeError."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        return _by_line(text, error)
    return data if isinstance(data, list) else [data]


def _by_line(text: str, whole: json.JSONDecodeError) -> list[Any]:
    """*whole* is what is wrong if already the first line is no object. Raises JSONDecodeError."""
    found: list[Any] = []
    begin = 0
    for line in text.splitlines(keepends=True):
        try:
            found += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise (json.JSONDecodeError(error.msg, text, begin + error.pos) if found else whole) from None
        begin += len(line)
    return found
