"""Files that a user names. A pipe or a device is refused: to read it could take for ever, and it reads but once."""

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
