"""The keys of one config.json, each checked as it is asked for."""

from pathlib import Path
from typing import Any, TypeVar

Fields = dict[str, Any]
Kind = TypeVar("Kind", bool, str, dict[str, Any], list[Any])

LARGEST = 1_000_000_000
"""Of all counts and sizes; more is no model's."""
_NEEDED: dict[type[Any], str] = {bool: "true or false", str: "text", dict: "a mapping", list: "a list"}


class ConfigError(ValueError):
    """A config.json that cannot be read as a language model: file, key, what is wrong."""

    def __init__(self, path: Path, key: str, message: str) -> None:
        self.path, self.key, self.message = path, key, message
        super().__init__(f"{path}: {key}: {message}" if key else f"{path}: {message}")

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.key, self.message)


class Config:
    """The keys of one file."""

    def __init__(self, path: Path, keys: Fields) -> None:
        self.path = path
        self.keys = keys

    def get(self, key: str, kind: type[Kind], default: Kind) -> Kind:
        """The key's value, of that *kind*; *default* where it is missing or null."""
        value = self.keys.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise ConfigError(self.path, key, f"{_NEEDED[kind]} is needed, not {shown(value)}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether it is true; *default* where it is missing or null."""
        return self.get(key, bool, default)

    def whole(self, key: str, default: int) -> int:
        """A whole number from 0; *default* where it is missing or null."""
        return default if self.keys.get(key) is None else _checked(self.path, key, self.keys[key], 0)

    def count(self, *names: str) -> int:
        """The first of *names* that is there, a positive whole number."""
        for name in names:
            value = self.keys.get(name)
            if value is not None:
                return _checked(self.path, name, value, 1)
        raise ConfigError(self.path, " or ".join(names), "missing")

    def check_divides(self, key: str, part: int, whole: int) -> None:
        """Raises ConfigError unless *whole* is cut evenly by *part*, the value of *key*."""
        if whole % part:
            raise ConfigError(self.path, key, f"{part} does not divide {whole}")

    def no_step_time(self, key: str, what: str) -> "ConfigError":
        """The refusal of a model for the part that *key* asks for."""
        return ConfigError(self.path, key, f"{what} cannot be costed: no step time is known for it here")


def _checked(path: Path, key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        needed = "a positive whole number" if least else "a whole number from 0"
        raise ConfigError(path, key, f"{needed} is needed, not {shown(value)}")
    if value > LARGEST:
        raise ConfigError(path, key, f"at most {LARGEST:,} is believed, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """The beginning of it: no more of a hostile value is formatted."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > LARGEST**2:
        return "a number of many digits"
    return repr(value)[:40]
