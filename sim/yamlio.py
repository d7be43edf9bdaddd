"""Strict YAML reader and writer: the only module that imports PyYAML.

Scalars follow the YAML 1.2 core schema, so `1e9` and `989e12` are numbers while `on`, `yes`, `12:30:00` and
`2024-05-01` are text. A duplicate key is refused. Every value has its line number.

Commands keep the data of shipped files between starts (`keep_documents`): reading YAML takes longer than checking it.

A file may be hostile: its size, nesting and number of values with aliases expanded are limited, far above what a
scenario needs.
"""

import re
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, ClassVar

import yaml

from sim.infile import KeptResults, opened
from sim.message import Message, located, os_reason

_FIRST: dict[str, str] = {"null": "~nN", "bool": "tTfF", "int": "-+0123456789", "float": "-+.0123456789"}
_CORE: list[tuple[str, str]] = [
    ("null", r"~|null|Null|NULL|"),
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
]
_TAG = "tag:yaml.org,2002:"

MOST_BYTES = 8_000_000
"""Largest size of a file [bytes]."""
MOST_VALUES = 100_000
"""Most values in a file, with every alias written out."""
MOST_LEVELS = 50
"""Most levels of lists and mappings within one another."""
MOST_CHARACTERS = 10_000
"""Most characters in one text, and in one number."""
TOO_DEEP = Message("nests lists and mappings more than {limit} levels deep", MOST_LEVELS)
TOO_MANY = Message("more than {limit} values, aliases written out", MOST_VALUES)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
LARGEST = 10**308
"""Largest whole number: a larger one is no floating-point number."""
SMALL_TEXT = 4000
"""Length of a text [characters] that cannot nest deeply enough for libyaml's recursion to leave its stack."""


class YamlError(ValueError):
    """A file that cannot be read as YAML. `line` counts from 1; 0 where the error has no line."""

    def __init__(self, path: str, line: int, message: str) -> None:
        self.path, self.line, self.message = path, line, message
        super().__init__(located([(path, line, message)]))

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.line, self.message)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes text that YAML 1.1 or 1.2 would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_multi_representer(Message, lambda dumper, text: dumper.represent_str(str.__str__(text)))
for _name, _pattern in _CORE:
    for _class in (_Loader, _Dumper):
        _starts = [*_FIRST[_name], ""] if _name == "null" else list(_FIRST[_name])
        _class.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _starts)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (dict, list, scalars) of one file, with the line of every place in it."""

    path: str
    """Path of the file; empty where the data comes from Python and has no lines."""
    data: Any
    _source: yaml.Node | str | None
    """Node of the whole file; or the text to compose it from, where lines are seldom asked for."""
    faults: tuple["YamlError", ...] = ()
    """Mistakes in single values and keys, which are in `data` as far as they can be read."""

    @property
    def root(self) -> yaml.Node | None:
        """Node of the whole file."""
        return _compose(self._source, self.path) if isinstance(self._source, str) else self._source

    def line(self, place: tuple[str | int, ...]) -> int:
        """Return the line, counted from 1, of the key or item at *place*, or of its nearest ancestor in the file.

        0 for data that comes from Python.
        """
        if not self.path:
            return 0
        root = self.root
        node, line = root, 1 if root is None else root.start_mark.line + 1
        for step in place:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line


def key_span(document: Document, place: tuple[str | int, ...]) -> tuple[int, int]:
    """Return start and end [characters] of the key at *place* in the text of *document*, quotes included."""
    node = document.root
    for step in place[:-1]:
        found = _child(node, step)
        node = None if found is None else found[1]
    keys = (key for key, _ in node.value) if isinstance(node, yaml.MappingNode) else ()
    mark = next(key for key in keys if key.value == str(place[-1]))
    return mark.start_mark.index, mark.end_mark.index


def rename_key(document: Document, place: tuple[str | int, ...], name: str) -> None:
    """Rename the key at *place* of *document* to *name*, in its data and for its lines."""
    holder, node = document.data, document.root
    for step in place[:-1]:
        holder, found = holder[step], _child(node, step)
        node = None if found is None else found[1]
    items = [(name if key == place[-1] else key, value) for key, value in holder.items()]
    holder.clear()
    holder.update(items)
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        key.value = name if key.value == place[-1] else key.value


def read(path: Path | str, patient: bool = False) -> Document:
    """Read one YAML file. Raises YamlError, also where the file is missing or is not UTF-8 text.

    A *patient* reader finds mistakes in single values and keys among the document's `faults`.
    """
    try:
        with opened(path) as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig") if len(content) <= MOST_BYTES else ""
    except OSError as error:
        raise YamlError(str(path), 0, Message("cannot be read: {reason}", os_reason(error))) from None
    except UnicodeDecodeError as error:
        raise YamlError(str(path), 0, Message("is not UTF-8 text (byte {position})", error.start)) from None
    if len(content) > MOST_BYTES:
        raise YamlError(str(path), 0, Message("is larger than {limit:g} MB", MOST_BYTES / 1e6))
    if _kept is not None and not patient and Path(path).is_relative_to(_kept[0]):
        return Document(str(path), _kept[1].result(text, lambda text: read_text(text, str(path)).data), text)
    return read_text(text, str(path), patient)


_kept: tuple[Path, KeptResults] | None = None
"""Folder of the files whose data is kept between starts, and that data."""


def keep_documents(folder: Path, file: Path | None = None) -> None:
    """Keep the data of files below *folder* between starts from now on, in *file* beside this module's bytecode.

    The data is kept by the whole text of its file, and by the versions of this module and of PyYAML.
    """
    global _kept
    if _kept is None or _kept[0] != folder:
        version = Path(__file__).read_bytes() + yaml.__version__.encode()
        _kept = folder, KeptResults(file or Path(cache_from_source(__file__)).with_suffix(".documents"), version)


def read_text(text: str, name: str, patient: bool = False) -> Document:
    """Read the document in *text*; *name* stands for the file in errors. Raises YamlError.

    A *patient* reader finds mistakes in single values and keys among the document's `faults`. The key `<<: *anchor`
    stands for the keys of that mapping that its holder lacks, as in YAML 1.1.
    """
    root, builder = _compose(text, name), _Builder(name)
    data = None if root is None else builder.build(root)
    if builder.faults and not patient:
        raise builder.faults[0]
    return Document(name, data, root, tuple(builder.faults))


def parse(text: str) -> Any:
    """Read one value as it would be typed in a file: `4` is a number, `[1, 2]` a list. Raises YamlError."""
    return read_text(text, "value").data


def dump(data: Any) -> str:
    """Return plain data as YAML text, keys in their order, readable again by this module and by YAML 1.1 parsers."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def dump_line(data: Any) -> str:
    """Return plain data as YAML text on one line: {policy: vllm, max_num_seqs: 8}."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=True
    )
    return text.strip().removesuffix("\n...")  # PyYAML ends a document of one plain value with this mark


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        if len(text) > SMALL_TEXT:
            _check_limits(text, name)
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except YamlError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "is not YAML"
        if problem.endswith("document"):
            raise YamlError(name, mark.line + 1 if mark else 0, "begins another document: one is read") from None
        # brackets alone reach libyaml's own limit before its first event arrives here
        message = TOO_DEEP if "nesting depth" in problem else Message("is not valid YAML: {problem}", problem)
        raise YamlError(name, mark.line + 1 if mark else 0, message) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", "") or str(error).splitlines()[0]
        raise YamlError(name, 0, Message("is not valid YAML: {reason}", reason)) from None
    return node


def _check_limits(text: str, name: str) -> None:
    """Refuse a *text* of too many levels or values by its events, before anything recurses into it."""
    levels = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        values += isinstance(event, yaml.NodeEvent)
        if levels > MOST_LEVELS or values > MOST_VALUES:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise YamlError(name, line, TOO_DEEP if levels > MOST_LEVELS else TOO_MANY)


class _Builder:
    """Builder of plain data from nodes; an anchor's data is built once and shared."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.built: dict[int, Any] = {}
        self.values: dict[int, int] = {}
        """Node id -> number of values that the node stands for, aliases written out."""
        self.open: set[int] = set()
        self.faults: list[YamlError] = []
        """Mistakes that leave the rest readable, in order."""

    def build(self, node: yaml.Node) -> Any:
        value: Any
        key = id(node)
        if key in self.built:
            return self.built[key]
        if key in self.open:
            raise self._error(node, "an alias that contains itself")
        if len(self.open) >= MOST_LEVELS:
            raise self._error(node, TOO_DEEP)
        if isinstance(node, yaml.ScalarNode):
            self.values[key] = 1
            self.built[key] = value = self._scalar(node)
            return value
        self.open.add(key)
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node)
            self._count(node, [part for pair in node.value for part in pair])
        else:
            assert isinstance(node, yaml.SequenceNode), node
            value = self._sequence(node)
            self._count(node, node.value)
        self.open.discard(key)
        self.built[key] = value
        return value

    def _count(self, node: yaml.Node, inside: list[yaml.Node]) -> None:
        values = self.values[id(node)] = 1 + sum([self.values[id(part)] for part in inside])
        if values > MOST_VALUES:
            raise self._error(node, TOO_MANY)

    def _sequence(self, node: yaml.SequenceNode) -> list[Any]:
        if node.tag != _TAG + "seq":
            raise self._error(node, Message("the tag {tag} is not allowed", node.tag[:40]))
        return [self.build(item) for item in node.value]

    def _mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        if node.tag != _TAG + "map":
            raise self._error(node, Message("the tag {tag} is not allowed", node.tag[:40]))
        if any(_is_merge(key) for key, _ in node.value):
            node.value = self._merged(node)
        data: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.build(key_node)
            if key is None or isinstance(key, dict | list):
                raise self._error(key_node, "a key must be a plain word or number")
            if key in data:
                self._note(key_node, Message("the key {key!r} is given twice", str(key)[:40]))
            value = self.build(value_node)
            data.setdefault(key, value)  # keep the first value, whose line is recorded
        return data

    def _merged(self, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the keys and values of *node*, with those of other mappings in place of `<<`."""
        pairs = [pair for pair in node.value if not _is_merge(pair[0])]
        known = {key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)}
        for key, value in node.value:
            holders = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for holder in holders if _is_merge(key) else ():
                if not isinstance(holder, yaml.MappingNode):
                    raise self._error(key, "the key << must name a mapping, or a list of mappings")
                self.build(holder)
                added = [pair for pair in holder.value if str(pair[0].value) not in known]
                known |= {str(name.value) for name, _ in added}
                pairs += added
        return pairs

    def _scalar(self, node: yaml.Node) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if len(text) > MOST_CHARACTERS:
            shown = f"{text[:20]}..."
            self._note(
                node,
                Message("a text of {count} characters ({text!r}); at most {limit}", len(text), shown, MOST_CHARACTERS),
            )
            text = text[:MOST_CHARACTERS] if kind == "str" else "1"
        if found := _UNPRINTABLE.search(text):
            self._note(
                node, Message("the text {text!r} holds the control character {character!r}", text[:20], found.group())
            )
            text = _UNPRINTABLE.sub("", text)
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind == "int":
                return _whole(text)
            if kind == "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            raise self._error(node, Message("{text!r} is not a usable number", text[:40])) from None
        raise self._error(node, Message("the tag {tag} is not allowed", node.tag[:40]))

    def _note(self, node: yaml.Node, message: str) -> None:
        self.faults.append(self._error(node, message))

    def _error(self, node: yaml.Node, message: str) -> YamlError:
        return YamlError(self.name, node.start_mark.line + 1, message)


def _is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.style


def _whole(text: str) -> int:
    value = int(text, 16) if text.startswith("0x") else int(text)
    if abs(value) > LARGEST:
        raise ValueError
    return value


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    """Return line and node of one key or item of *node*; None where there is no such child."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None
