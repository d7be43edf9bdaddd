"""The answers of `check`, `list` and `show`."""
