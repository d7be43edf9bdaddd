"""pyarrow without pandas: the first array would import pandas to recognise its objects, which takes 0.2 s."""

import sys

import pyarrow as pa


class _Hidden:
    """Import finder that reports pandas as missing."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ImportError for pandas."""
        if name == "pandas":
            raise ImportError(name)


def forgo_pandas() -> None:
    """Make the first array without pandas, unless it is imported already; `to_pandas` imports it all the same."""
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)
