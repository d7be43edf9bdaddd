"""Languages: every text is in the catalogues, and files do not depend on the reader's language."""

import ast
import pickle
import re
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from string import Formatter
from subprocess import CompletedProcess

import pytest
from babel.messages.pofile import read_po
from rich.cells import cell_len
from typer.exceptions import TyperException

from sim.cli import _in_language
from sim.cli.help import _lines
from sim.language import ENGLISH, LANGUAGES, _, keep, ngettext, release, speaking, translate_rendered
from sim.language.catalogue import catalogue, file_of
from sim.message import Message, joined, located, parsed, placed
from tests.language.english import english, text_of
from tests.language.messages import NEVER, NO_SENTENCES, bare_sentences, found, parts

Command = Callable[..., CompletedProcess[str]]
OTHERS = [code for code in LANGUAGES if code != ENGLISH]
SCENARIO = """\
name: klein
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 2}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 4
slo: {ttft_s: 1.0, tpot_s: 0.1}
site: {electricity_usd_per_kwh: 0.1, pue: 1.3}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
sweep: {workload.arrivals.rate_rps: [1, 400]}
fleets:
  - name: RTX
    pools: [{gpu: rtx-4090, replicas: 1, server: workstation-4x4090, batching: {policy: vllm}}]
    cost: {acquisition: buy}
  - name: L4
    pools: [{gpu: l4, replicas: 1, batching: {policy: vllm}}]
    cost: {acquisition: rent, quotes: {l4: 0.5}}
  - name: T4
    pools: [{gpu: t4, replicas: 1, batching: {policy: vllm}}]
"""
NAMES = frozenset({"the model's own dtype"})
"""Names in data/."""


def places(texts: Iterable[str]) -> set[tuple[str, str | None]]:
    fields = [field for text in texts for field in Formatter().parse(text)]
    return {(name, "" if form and form[0] == " " else form) for _, name, form, _ in fields if name}  # "{key: value}"


def test_values_to_be_written_and_keys_stay_as_they_are() -> None:
    kinds = Message("must be one of {allowed}, not {value}{hint}", "datasheet, quoted", "'quotd'", "")
    with speaking("zh"):
        assert "datasheet, quoted" in translate_rendered(kinds)
        assert translate_rendered(located([("a.yaml", 1, placed("kind", kinds))])).startswith("a.yaml:1: kind: ")


@pytest.mark.slow
@pytest.mark.parametrize("code", OTHERS)
def test_a_translation_has_the_places_of_its_message(code: str) -> None:
    complaints = []
    for one in read_po(BytesIO(file_of(code).read_bytes()), locale=code):
        translations = one.string if isinstance(one.string, tuple) else (one.string,)
        messages = one.id if isinstance(one.id, tuple) else (one.id,)
        if one.fuzzy:
            complaints.append(f"fuzzy: {one.id!r}")
        elif all(translations) and one.python_brace_format and places(translations) != places(messages):
            complaints.append(f"other places: {one.id!r}: {translations}")
    assert not complaints, "\n".join(sorted(complaints))


def untranslated(code: str) -> frozenset[str]:
    """Return the messages without a translation into the language *code*; `make language` lists them."""
    return frozenset(text for text in found() if not catalogue(code).get(text))


def left_in_english(text: str, code: str) -> list[str]:
    """Return what *text* says in English, names and messages without a translation into *code* apart."""
    left = english(text, NAMES)
    return left and english(text, NAMES | untranslated(code))


@pytest.mark.slow
@pytest.mark.parametrize("code", OTHERS)
def test_the_catalogue_is_read_as_babel_reads_it(code: str) -> None:
    catalog = read_po(BytesIO(file_of(code).read_bytes()), locale=code)
    theirs = {}
    for one in catalog:
        if one.id:
            theirs[one.id[1] if isinstance(one.id, tuple) else one.id] = (
                one.string[0] if isinstance(one.string, tuple) else one.string
            )
    assert catalogue(code) == {message: text for message, text in theirs.items() if text}


def test_messages_and_plurals() -> None:
    assert (_("yes"), ngettext("{count} GPU", "{count} GPUs", 1), ngettext("{count} GPU", "{count} GPUs", 2)) == (
        *("yes", "1 GPU"),
        "2 GPUs",
    )
    with speaking("zh"):
        assert (_("yes"), ngettext("{count} GPU", "{count} GPUs", 1)) == ("是", "1 块 GPU")
        assert _("{low} to {high}", low=1, high=4) == "1 至 4"
        assert _("what nobody has translated") == "what nobody has translated"
    with pytest.raises(ValueError, match="fr"), speaking("fr"):
        pass


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Paid by the owner of the rented hardware: VAT.", "由出租方承担：增值税。"),
        ("must be above 0, not -1", "必须大于 0，而不是 -1"),
        ("a.yaml:3: slo.ttft_s: must be above 0, not nothing", "a.yaml:3: slo.ttft_s: 必须大于 0，而不是 空值"),
        ("unknown key; did you mean horizon_s?", "未知的键；是否指 horizon_s？"),
        ("The quote for l4 is not used.", "l4 的报价未被使用。"),
        ("No fleet can run. The two runs have the same inputs.", "没有机群能够运行。两次运行的输入相同。"),
        ("nobody ever said this about {braces", "nobody ever said this about {braces"),
        ("load", "负载"),
        ("Evenly spaced arrivals at 2 requests/s.", "等间隔到达，2 请求/秒。"),
        (
            "Poisson arrivals at 2 requests/s; prompts: 9 tokens; answers: lognormal, mean 8 (cv 2), at most 6 tokens.",
            "泊松到达，2 请求/秒；提示词：9 词元；回答：对数正态，均值 8（cv 2），至多 6 词元。",
        ),
        ("4x RTX 4090", "4x RTX 4090"),
        (
            "is missing: the weights of mine are stored as 'torchao', which is not known here",
            "缺失：mine 的权重以 'torchao' 格式存储，此格式在这里未知",
        ),
    ],
)
def test_a_finished_sentence_is_translated(text: str, told: str) -> None:
    assert translate_rendered(text) == text
    with speaking("zh"):
        assert translate_rendered(text) == told
        assert translate_rendered(told) == told


def test_a_message_is_translated_by_its_template_for_any_values() -> None:
    closer = "; low: and high: narrow the range"
    told = Message("may be drawn as {value:g}: {where}{message}{closer}", 0.6, "", Message("is {one}", 1), closer)
    with speaking("zh"):
        assert translate_rendered(told) == "可能抽到 0.6：is 1；low: 和 high: 可收窄范围"
        assert (
            translate_rendered("site: " + pickle.loads(pickle.dumps(told)))
            == "site: 可能抽到 0.6：is 1；low: 和 high: 可收窄范围"
        )
        assert translate_rendered(str(ValueError(Message("there is no file {file}", "a.csv")))) == "没有文件 a.csv"
        assert translate_rendered(joined("; ", ["is missing", Message("unknown key{hint}", "")])) == "缺失；未知的键"
    assert told == "may be drawn as 0.6: is 1; low: and high: narrow the range"


@pytest.mark.slow
def test_every_message_has_as_many_values_as_places(root: Path) -> None:
    calls = [
        (node, f"{file.name}:{node.lineno}")
        for file in (root / "sim").rglob("*.py")
        if file.name != "message.py"
        for part in parts(file, r"\bMessage\(")
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Message"
    ]
    texts = [(node.args[0], len(node.args) - 1, place) for node, place in calls]
    assert [place for text, _, place in texts if not isinstance(text, ast.Constant)] == []
    wrong = [place for text, given, place in texts if len(parsed(ast.literal_eval(text))[1]) != given]
    assert wrong == []


F_STRING = r"""(?i)\b(f|fr|rf)['"]"""


@pytest.mark.slow
def test_no_f_string_loses_the_template_of_a_sentence(root: Path) -> None:
    files = {file.relative_to(root).as_posix(): file for file in (root / "sim").rglob("*.py")}
    bare = [
        f"{name}:{line}: {text!r}: carry it as a Message, or translate it by _"
        for name, file in files.items()
        if not name.startswith(tuple(NEVER))
        for part in parts(file, F_STRING)
        for line, text in bare_sentences(part)
        if text not in NO_SENTENCES
    ]
    assert bare == []
    built = ast.parse('f"is larger than {limit} MB"; Message("{x}", f"{x:.2f}"); re.compile(f"(a of {x}|{y})")')
    assert [text for _, text in bare_sentences(built)] == ["is larger than {} MB"]


@pytest.mark.slow
def test_names_of_a_scenario_are_never_translated() -> None:
    text = "2x A100 bought cannot be planned: must be above 0, not -1"
    kept = keep(["2x A100", "2x A100 bought", "lone"])
    try:
        with speaking("zh"):
            assert translate_rendered("2x A100 bought") == "2x A100 bought"
            assert translate_rendered("2 年内 2x A100 bought 成本最低") == "2 年内 2x A100 bought 成本最低"
            assert "2x A100 bought" in translate_rendered(text)
            assert "必须大于 0" in translate_rendered(text)
    finally:
        release(kept)
    kept = keep(["bought", "nothing"])
    try:
        with speaking("zh"):
            told = translate_rendered("bought is not compared: it meets the service level up to 3, and the load is 4.")
            assert told == "不比较 bought：它在 3 以内达到服务等级，而负载是 4。"
            assert translate_rendered(told) == told, "a sentence that is told twice"
            assert translate_rendered("must be above 0, not nothing") == "必须大于 0，而不是 nothing"
    finally:
        release(kept)


def test_a_currency_that_is_put_in_the_place_of_the_dollar_leaves_no_dollar() -> None:
    assert not [text for text in catalogue("zh").values() if re.search("美元.?USD", text)]


def test_marks_that_begin_no_line_stay_with_what_they_close() -> None:
    # one mark may stand in the two columns that the help leaves free, two may not
    assert _lines("（甲乙，丙", 6) == ["（甲乙，", "丙"]
    assert _lines("（甲乙）、丙", 6) == ["（甲", "乙）、", "丙"]
    assert _lines("甲 bc）、丁", 5) == ["甲", "bc）、", "丁"]


@pytest.mark.slow
@pytest.mark.parametrize("code", OTHERS)
def test_a_run_in_another_language(gpufleet: Command, tmp_path: Path, code: str) -> None:
    (tmp_path / "klein.yaml").write_text(SCENARIO)
    done = {
        one: gpufleet("run", "klein.yaml", "--out", one, "--workers", "1", "--lang", one) for one in (ENGLISH, code)
    }
    first, other = tmp_path / ENGLISH, tmp_path / code
    page = text_of((other / "report.html").read_text())
    with speaking(code):  # behind this heading: titles and notes of sources, as the files in data/ have them
        read = page[: page.index(_("Values to check before deciding"))]
    assert left_in_english(f"{done[code].stdout}|{done[code].stderr}|{read}", code) == []
    assert f'<html lang="{LANGUAGES[code]}">' in (other / "report.html").read_text()
    assert done[code].returncode == 0
    table = done[code].stdout.partition("\n\n")[2].partition("\n\n")[0]  # between the verdict and the notes
    rows = [
        line for line in table.splitlines() if "  " in line
    ]  # sentences wrap at the terminal's width, if it has one
    assert len(rows) >= 3
    assert max(map(cell_len, rows)) <= 80
    # what programs read is English for everybody
    names = sorted(file.name for file in first.iterdir() if file.suffix in (".csv", ".yaml"))
    assert {"summary.csv", "costs.csv", "resolved.yaml"} <= {*names}
    assert [name for name in names if (first / name).read_bytes() != (other / name).read_bytes()] == []
    assert {one.name for one in (first / "points").iterdir()} == {one.name for one in (other / "points").iterdir()}


@pytest.mark.slow
def test_help_and_wrong_input_in_chinese(gpufleet: Command) -> None:
    told = gpufleet("--lang=zh", "run", "--help").stdout
    assert "用法：" in told
    assert left_in_english(told.replace("SCENARIO", ""), "zh") == []
    assert max(map(cell_len, told.splitlines())) <= 80
    wrong = gpufleet("check", "4x4090-vs-2xa100", "--set", "slo.attainment=3", "--lang", "zh_CN.UTF-8")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "至多为 1，而不是 3" in wrong.stderr
    refused = gpufleet("--lang", "fr", "list", "gpus")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(("words", "blamed"), [([], "GPUFLEET_LANG=xx"), (["--lang", "yy", "list"], "--lang yy")])
def test_the_error_for_an_unknown_language_names_the_option_that_set_it(
    monkeypatch: pytest.MonkeyPatch, words: list[str], blamed: str
) -> None:
    monkeypatch.setenv("GPUFLEET_LANG", "xx")
    with pytest.raises(TyperException, match=f"{blamed}: no catalogue"):
        _in_language(words)


@pytest.mark.slow
def test_json_is_english_for_everybody(gpufleet: Command) -> None:
    told = [gpufleet("check", "4x4090-vs-2xa100", "--format", "json", "--lang", code).stdout for code in LANGUAGES]
    assert len(set(told)) == 1
    assert told[0]
