"""Server of a command line: `vllm serve ...`, `python -m sglang.launch_server ...`, also within docker or sh -c."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from sim.answers.from_files.server_options import (
    BATCHING,
    FORMATS,
    HARMLESS_VARIABLES,
    KERNELS,
    LORA,
    MODEL,
    NODES,
    PRECISION,
    ROLE,
    SECRET_VARIABLE,
    SGLANG,
    SGLANG_OTHER,
    STEPTIME,
    VLLM,
    VLLM_SHORT,
    Option,
)
from sim.answers.from_files.shell import Command, Word, commands_in
from sim.answers.from_files.source import ServerDraft, SourceFile, slug
from sim.catalogue.checkpoint_names import KV_DTYPES
from sim.message import Message
from sim.steptime.options import BACKENDS
from sim.yamlio import YamlError, parse

Problem = tuple[str, int, str]
MODULES = LORA + "modules"
"""Key that stands for the names of adapters."""
STARTS = re.compile(
    r"\bvllm\s+serve\b|vllm\.entrypoints|sglang\.launch_server|\bsglang\s+serve\b|vllm-openai|lmsysorg/sglang"
    r"|dynamo\.(vllm|sglang)\b"
)
"""Pattern of text that starts a server."""
OWN = "gpufleet.io/"
"""Prefix of annotations in which an exported deployment stores the scenario keys that its tool cannot express."""
IMAGES = {"vllm": re.compile(r"vllm-openai|vllm/vllm|/vllm[:@]"), "sglang": re.compile(r"sglang")}
RELEASE = re.compile(r"(?:^|/)(?:vllm|sglang)(?:-(?!runtime)[\w-]+)?:v?(\d+\.\d+(?:\.\d+)?)")
"""Release of an engine in the tag of its image; images of platforms have tags of their own."""
ALMOST = 0.8
"""Similarity from which an unknown option counts as a misspelling."""
MULTIPLES = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
"""Suffixes of counts, as vLLM reads them."""


def servers_in(path: Path, text: str) -> SourceFile:
    """Return the servers that the script *text* in the file *path* starts. Mistakes are in `problems` of the result."""
    source = SourceFile(path.name, "server command")
    problems: list[Problem] = []
    for command in commands_in(text):
        server = server_of(command, str(path), source, problems)
        if server is not None:
            server.folder = path.parent
            source.servers.append(server)
    _read_comments(text, source, problems)
    if not source.servers and not problems:
        problems.append((str(path), 0, "no command starts `vllm serve` or `sglang.launch_server`"))
    source.problems = problems
    return source


def _read_comments(text: str, source: SourceFile, problems: list[Problem]) -> None:
    """Read the keys that comments above the commands of an exported script keep."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(rf"#\s*{re.escape(OWN)}(pool|fleet):(.*)", line)
        server = next((one for one in source.servers if int(one.place.rpartition(":")[2]) > number), None)
        if found is None or server is None:
            continue
        keys = own_keys(found[2], OWN + found[1], server.place.rpartition(":")[0], number, problems)
        source.read.append(f"{OWN}{found[1]}: {', '.join(map(str, keys))}")
        if found[1] == "fleet":
            server.fleet |= keys
            continue
        server.gpu = str(keys.pop("gpu", ""))
        server.replicas = int(count) if str(count := keys.pop("replicas", "")).isdecimal() else None
        server.own |= keys
        server.names = (slug(str(keys.get("name", ""))),)


def own_keys(text: str, name: str, path: str, line: int, problems: list[Problem]) -> dict[str, Any]:
    """Return the keys of a scenario in the annotation *name*; empty after a mistake, which *problems* receives."""
    try:
        keys = parse(text)
    except YamlError:
        keys = None
    if isinstance(keys, dict):
        return keys
    problems.append((path, line, Message("{name} must hold keys of a scenario: {{key: value}}", name)))
    return {}


def server_of(
    command: Command, path: str, source: SourceFile, problems: list[Problem], image: str = ""
) -> ServerDraft | None:
    """Return the server that *command* starts; None if it starts none.

    Parameters
    ----------
    command
        Words and variables; without a program if the image has one.
    path
        File for messages.
    source
        Receives sentences on options.
    problems
        Receives mistakes.
    image
        Container image of the command; empty for none.

    """
    words = command.words
    for place, word in enumerate(words):
        if STARTS.search(word.text) and " " in word.text.strip() and place and words[place - 1].text.startswith("-"):
            for inner in commands_in(word.text, word.line):  # sh -c "vllm serve ..."
                inner.variables = command.variables | inner.variables
                if (server := server_of(inner, path, source, problems, image)) is not None:
                    return server
    found = _start(words, image)
    if found is None:
        return None
    engine, first, release = found
    line = words[first].line if first < len(words) else words[-1].line if words else 0
    server = ServerDraft(f"{path}:{line}" if line else path, engine, release)
    _read_docker(words[:first], command.variables, server)
    _read_variables(command.variables, server, source)
    _Options(server, path, source, problems).read(words[first:])
    return server


def _start(words: Sequence[Word], image: str) -> tuple[str, int, str] | None:
    """Return the engine, the place of its first option, and its release."""
    release = _release(image)
    in_image: tuple[str, int, str] | None = None
    for place, word in enumerate(words):
        name, following = word.text.rpartition("/")[2], words[place + 1].text if place + 1 < len(words) else ""
        if name == "vllm" and following == "serve":
            return "vllm", place + 2, release
        if re.fullmatch(r"vllm\.entrypoints(\.\w+)*\.api_server", word.text) or (
            word.text.endswith("api_server.py") and "vllm" in word.text
        ):
            return "vllm", place + 1, release
        if word.text in ("sglang.launch_server", "sglang_router.launch_server") or (
            word.text.endswith("launch_server.py") and "sglang" in word.text
        ):
            return "sglang", place + 1, release
        if found := re.fullmatch(r"dynamo\.(vllm|sglang)", word.text):
            return found[1], place + 1, ""
        if name == "sglang" and following == "serve":
            return "sglang", place + 2, release
        containers = any(one.text.rpartition("/")[2] in ("docker", "podman", "nerdctl") for one in words[:place])
        if containers and not word.text.startswith("-") and words[place - 1].text not in ("-v", "--volume", "-e"):
            for engine, pattern in IMAGES.items():
                if pattern.search(word.text) and "=" not in word.text:
                    release = _release(word.text)
                    in_image = in_image or (engine, place + 1, release)
    if in_image is None and image and IMAGES["vllm"].search(image) and (not words or words[0].text.startswith("-")):
        return "vllm", 0, release
    return in_image if in_image is None or in_image[0] == "vllm" else None


def _release(image: str) -> str:
    found = RELEASE.search(image)
    return found[1] if found else ""


def _read_docker(words: Sequence[Word], variables: dict[str, str], server: ServerDraft) -> None:
    """Read the GPUs and variables of `docker run` options."""
    for word, following in zip(words, [*words[1:], Word("", 0)], strict=False):
        name, _, value = word.text.partition("=")
        value = value or following.text
        if name == "--gpus":
            devices = re.search(r"device=([\w,-]+)", value)
            if devices:
                server.gpus = len(devices[1].split(","))
            elif value.isdecimal():
                server.gpus = int(value)
        if name in ("-e", "--env") and "=" in value:
            key, _, content = value.partition("=")
            variables.setdefault(key, content)


def _read_variables(variables: Mapping[str, str], server: ServerDraft, source: SourceFile) -> None:
    """Read the number of GPUs from *variables*; list the others without their values."""
    for name, value in variables.items():
        if any(part in name.lower().split("_") for part in SECRET_VARIABLE):
            source.secrets.append(name)
        elif name in HARMLESS_VARIABLES:
            devices = [one for one in value.split(",") if one.strip()]
            if devices and value not in ("all", "none", "void"):
                server.gpus = len(devices)
        elif name.endswith(("_LOGGING_LEVEL", "_DEBUG", "_IFNAME", "_KEEP_ALIVE")):
            source.harmless.append(name)
        elif name.startswith(("VLLM_", "SGLANG_", "SGL_", "NCCL_")):
            source.not_simulated.append(name)


class _Options:
    """Reader of the options of one command."""

    def __init__(self, server: ServerDraft, path: str, source: SourceFile, problems: list[Problem]) -> None:
        self.server, self.path, self.source, self.problems = server, path, source, problems
        self.table = VLLM if server.engine == "vllm" else SGLANG

    def read(self, words: Sequence[Word]) -> None:
        """Read all options into the server and its source."""
        place = 0
        while place < len(words):
            word = words[place]
            place += 1
            if not word.text.startswith("-") or word.text == "-":
                if not self.server.model and self.server.engine == "vllm":
                    self._model(word)
                elif word.text:
                    self._report(word.line, Message("{word!r} belongs to no option", _cut(word.text)))
                continue
            name, given = self._name(word)
            option = self.table.get(name)
            values: list[str] = [] if given is None else [given]
            if given is None:
                while place < len(words) and self._is_value(words[place].text, option, values):
                    values.append(words[place].text)
                    place += 1
            if option is None:
                self._report_unknown(name, word)
            else:
                self._take(name, option, values, word)
        self._finish()

    def _name(self, word: Word) -> tuple[str, str | None]:
        """Return the long name of the option *word* and the value that is attached to it."""
        name, sign, value = word.text.partition("=")
        plain = name.lstrip("-").replace("_", "-")
        if not name.startswith("--") and (level := re.fullmatch(r"O(\d|\.\w+)?", plain)) and level:
            return "optimization-level", value if sign else plain[1:]
        shorter = VLLM_SHORT if self.server.engine == "vllm" else SGLANG_OTHER
        plain = shorter.get(plain, plain)
        if plain not in self.table and name.startswith("--"):  # argparse accepts unambiguous prefixes of names
            begun = [one for one in self.table if one.startswith(plain)]
            plain = begun[0] if len(begun) == 1 else plain
        if plain not in self.table and "." in plain:
            plain = plain.partition(".")[0]  # a key of an option whose value is a JSON object
        return plain, value if sign else None

    def _is_value(self, text: str, option: Option | None, values: Sequence[str]) -> bool:
        if text.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", text):
            return False
        if option is not None and option.kind in ("flag", "off"):
            return not values and text.lower() in ("true", "false")
        several = option is not None and option.kind == "text" and option.key in ("", MODULES) and not option.secret
        return not values or several

    def _take(self, name: str, option: Option, values: Sequence[str], word: Word) -> None:
        if option.secret:
            self.source.secrets.append(f"--{name}")
            return
        if option.kind in ("flag", "off"):
            wanted = not values or values[0].lower() == "true"
            if option.key.startswith(f"{ROLE}."):
                self._role(name, option.key.removeprefix(f"{ROLE}.") if wanted else "null", word.line)
            elif option.key:
                self._put(name, option.key, wanted == (option.kind == "flag"))
            else:
                self._leave(name, option)
            return
        if not values:
            self._report(word.line, Message("--{name} has no value", name))
            return
        if not option.key:
            self._leave(name, option)
            self.server.served = values[0] if name == "served-model-name" else self.server.served
            return
        if option.key == MODULES:
            self._adapters(name, values, word.line)
            return
        value = self._value(name, option, values[0], word.line)
        if value is None:
            return
        if option.key == MODEL:
            self._model(Word(str(value), word.line))
        elif option.key == PRECISION:
            self.server.precision = FORMATS.get(str(value).lower(), str(value))
            self.source.read.append(f"--{name} {value}")
        elif option.key == ROLE:
            producer = re.search(r"\"kv_role\"\s*:\s*\"kv_(\w+)\"", str(value))
            transfers = {"producer": "prefill", "consumer": "decode"}
            role = transfers.get(producer[1] if producer else "", "none")
            self._role(name, role if name == "kv-transfer-config" else str(value), word.line)
            if name == "kv-transfer-config" and role == "none":
                self.source.not_simulated.append(
                    Message("--{name} (connectors of caches; see role and kv_tiers of a pool)", name)
                )
        elif option.key == "kv_cache_dtype":
            dtype = KV_DTYPES.get(str(value).lower())
            if dtype is None:
                self._report(
                    word.line,
                    Message(
                        "--{name}: unknown storage {value!r}; known here: {names}",
                        name,
                        value,
                        ", ".join(filter(None, KV_DTYPES)),
                    ),
                )
            else:
                self._put(name, option.key, dtype)
        elif option.key == "dtype":
            if str(value) not in ("auto", "half", "float16", "bfloat16"):
                self.source.not_simulated.append(Message("--{name} (numbers of another width)", name))
        elif option.key in KERNELS:
            by_engine = BACKENDS[option.key.removeprefix(STEPTIME)]
            kernels = str(value).lower().replace("-", "_")  # as vLLM reads it (arg_utils.py)
            if kernels in get_args(by_engine["vllm" if self.table is VLLM else "sglang"]):
                self._put(name, option.key, kernels)
            else:  # releases add kernels
                self._leave(name, option)
        elif option.key == NODES:
            self.server.nodes = max(1, value)
            self.source.harmless.append(f"--{name}")
        elif option.key == "expert_parallel":
            self._put(name, "enable_expert_parallel", value > 1)
        else:
            self._put(name, option.key, value)

    def _value(self, name: str, option: Option, text: str, line: int) -> Any:
        """Return the value of an option; None if it is not one or leaves the engine's default."""
        if "$" in text:
            self._report(line, Message("--{name}: the variable in {value!r} is not set in the file", name, _cut(text)))
            return None
        if option.kind == "text":
            return text
        if text in ("-1", "auto"):
            if option.key == BATCHING + "chunked_prefill_size":
                self.source.not_simulated.append(Message("--{name} (prompts are not cut)", name))
            return None
        if option.kind == "number":
            try:
                return float(text)
            except ValueError:
                self._report(line, Message("--{name} must be a number, not {value!r}", name, _cut(text)))
                return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
        if found is None or ("." in found[1] and not found[2]):
            self._report(line, Message("--{name} must be a whole number, not {value!r}", name, _cut(text)))
            return None
        return round(float(found[1]) * MULTIPLES.get(found[2], 1))

    def _put(self, name: str, key: str, value: Any) -> None:
        holders = {BATCHING: self.server.batching, LORA: self.server.lora, STEPTIME: self.server.steptime}
        section = next((one for one in holders if key.startswith(one)), "")
        holder = holders.get(section, self.server.keys)
        holder[key.removeprefix(section)] = value
        shown = key.removesuffix(".enabled")
        self.source.read.append(f"--{name}: {shown} {str(value).lower() if isinstance(value, bool) else value}")

    def _adapters(self, name: str, values: Sequence[str], line: int) -> None:
        """Read the names of adapters: `name=path`, or an object with `name`."""
        for text in values:
            found = text.partition("=")[0]
            if text.startswith("{"):
                found = str(own_keys(text, f"--{name}", self.path, line, self.problems).get("name", ""))
            if found:
                self.server.adapters.append(found)
        self.source.read.append(f"--{name}: {', '.join(self.server.adapters)}")

    def _role(self, name: str, role: str, line: int) -> None:
        if role in ("prefill", "decode"):
            self.server.role = role
            self.source.read.append(f"--{name}: role {role}")
        elif role not in ("null", "none", "agg", "prefill_and_decode"):
            self._report(line, Message("--{name} must be prefill or decode, not {cut!r}", name, _cut(role)))

    def _model(self, word: Word) -> None:
        if "$" in word.text:
            self._report(
                word.line, Message("the variable in the model {value!r} is not set in the file", _cut(word.text))
            )
        self.server.model = word.text

    def _leave(self, name: str, option: Option) -> None:
        if option.why:
            self.source.not_simulated.append(f"--{name} ({option.why})")
        else:
            self.source.harmless.append(f"--{name}")

    def _report_unknown(self, name: str, word: Word) -> None:
        near = get_close_matches(name, self.table, 1, ALMOST)
        shown = _cut(word.text.partition("=")[0])
        if near:
            self._report(word.line, Message("unknown option {option}; did you mean --{near}?", shown, near[0]))
        elif any(part in re.split(r"[-_]", name) for part in SECRET_VARIABLE):
            self.source.secrets.append(f"--{name}")
        else:
            self.source.not_simulated.append(Message("{option} (unknown)", shown))

    def _finish(self) -> None:
        """Resolve options that depend on others."""
        keys = self.server.keys
        if self.server.engine == "sglang" and any("dp-attention" in one for one in self.source.not_simulated):
            keys.pop("data_parallel_size", None)  # the data-parallel ranks share the GPUs of --tp-size
        for size in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            if keys.get(size) == 0:
                self._report(0, Message("{size} must be at least 1", size))
        lora = self.server.lora
        if lora.pop("enabled", bool(self.server.adapters)):
            keys["lora"] = dict(lora)
        elif lora:
            self.source.not_simulated.append(Message("{options} (without --enable-lora)", ", ".join(lora)))

    def _report(self, line: int, text: str) -> None:
        self.problems.append((self.path, line, text))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
