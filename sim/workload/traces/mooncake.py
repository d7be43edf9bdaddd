"""Mooncake traces with shared prefixes (Qin et al., "Mooncake", FAST 2025; github.com/kvcache-ai/Mooncake)."""

import json
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from sim.infile import opened
from sim.message import Message
from sim.spec import Count
from sim.workload.requests import RequestTable
from sim.workload.traces import columns
from sim.workload.traces.trace_file import TraceError, TraceFaults, TraceFile, TraceReading, misnamed, unreadable

KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
OPTIONAL = ("priority", "output_hash_ids")
MILLISECONDS = 1000.0


class MooncakeTrace(TraceFile):
    """Mooncake trace: a JSON object per line, with ids of the prompt's blocks.

    Keys: `timestamp` [ms], `input_length`, `output_length`, `hash_ids` of the prompt's blocks. Optional keys:
    `priority` (lower first, default 0), and `output_hash_ids` of the further blocks that prompt and response fill
    together, the first of which may start in the prompt. A last id for a block that is not full is dropped: such a
    block is never shared.
    """

    format: Literal["mooncake"]
    hash_block_tokens: Count = 512
    """Prompt tokens per hash id."""

    def read(self) -> TraceReading:
        """Return the requests of the file, checked. Raises TraceError listing all faults."""
        faults = TraceFaults(self.path)
        try:
            with opened(self.path) as file:
                rows, lines = _objects(file, faults)
        except OSError as error:
            raise unreadable(self.path, error) from None
        if not rows and not faults:
            raise TraceError([(self.path, 0, "holds no requests")])
        texts = {key: [_number_or_json(row[key]) for row in rows] for key in KEYS[:3]}
        times_ms = columns.seconds(texts["timestamp"], "timestamp", lines, faults)
        arrived_s = columns.check_not_dates(times_ms / MILLISECONDS, texts["timestamp"], "timestamp", lines, faults)
        prompts = columns.tokens(texts["input_length"], "input_length", lines, faults)
        outputs = columns.tokens(texts["output_length"], "output_length", lines, faults)
        priority = None
        if any("priority" in row for row in rows):
            given = [_number_or_json(row.get("priority", 0)) for row in rows]
            priority = columns.integers(given, "priority", lines, faults)
        faults.stop_if_any()
        hashes = self._whole_blocks([row["hash_ids"] for row in rows], prompts.tolist(), lines, faults)
        faults.stop_if_any()
        if any("output_hash_ids" in row for row in rows):
            answers = [row.get("output_hash_ids", []) for row in rows]
            hashes = self._with_answers(hashes, answers, (prompts + outputs).tolist(), lines, faults)
            faults.stop_if_any()
        requests = RequestTable(arrived_s, prompts, outputs, priority, hashes, self.hash_block_tokens)
        return TraceReading(requests)

    def _whole_blocks(
        self, ids: list[Any], prompts: list[int], lines: list[int], faults: TraceFaults
    ) -> list[tuple[int, ...]]:
        """Return the ids of the blocks that each prompt fills.

        Each full block must have an id, and the remainder may have one.
        """
        whole: list[tuple[int, ...]] = []
        size = self.hash_block_tokens
        wrong_type, wrong_count = [], []
        for row, (hashes, tokens) in enumerate(zip(ids, prompts, strict=True)):
            if type(hashes) is not list or not set(map(type, hashes)) <= {int}:
                wrong_type.append(row)
            elif not tokens // size <= len(hashes) <= -(-tokens // size):
                wrong_count.append(row)
            else:
                whole.append(tuple(hashes[: tokens // size]))
        faults.add_rows(np.array(wrong_type, np.intp), lines, lambda row: "hash_ids must be a list of whole numbers")
        faults.add_rows(
            np.array(wrong_count, np.intp),
            lines,
            lambda row: Message(
                "{count} hash_ids for {tokens} tokens in blocks of {size}; is hash_block_tokens right?",
                len(ids[row]),
                prompts[row],
                size,
            ),
        )
        return whole

    def _with_answers(
        self,
        prompts: list[tuple[int, ...]],
        answers: list[Any],
        totals: list[int],
        lines: list[int],
        faults: TraceFaults,
    ) -> list[tuple[int, ...]]:
        """Return the ids of *prompts* and of the blocks that prompt and response fill together (*totals* tokens)."""
        size = self.hash_block_tokens
        whole: list[tuple[int, ...]] = []
        wrong_type, wrong_count = [], []
        for row, (known, hashes, tokens) in enumerate(zip(prompts, answers, totals, strict=True)):
            if type(hashes) is not list or not set(map(type, hashes)) <= {int}:
                wrong_type.append(row)
            elif len(known) + len(hashes) > -(-tokens // size):
                wrong_count.append(row)
            else:
                whole.append((*known, *hashes)[: tokens // size])
        message = "output_hash_ids must be a list of whole numbers"
        faults.add_rows(np.array(wrong_type, np.intp), lines, lambda row: message)
        faults.add_rows(
            np.array(wrong_count, np.intp),
            lines,
            lambda row: Message(
                "{count} output_hash_ids behind {blocks} whole blocks of the prompt, but "
                "prompt and answer have {tokens} tokens in blocks of {size}",
                len(answers[row]),
                len(prompts[row]),
                totals[row],
                size,
            ),
        )
        return whole


def _objects(file: Iterable[bytes], faults: TraceFaults) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the lines that are objects with the right keys, and their line numbers."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for line, text in enumerate(file, 1):
        if text.isspace():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            faults.add(line, Message("is not JSON: {reason}", getattr(error, "msg", "unreadable")))
            continue
        if type(row) is not dict:
            faults.add(line, "is not a JSON object")
        elif set(KEYS) <= row.keys() <= {*KEYS, *OPTIONAL}:
            rows.append(row)
            lines.append(line)
        else:
            for complaint in misnamed("key", list(row), KEYS, OPTIONAL):
                faults.add(line, complaint)
    return rows, lines


def _number_or_json(value: object) -> object:
    """Return numbers unchanged, other values as JSON text, so that text like "12" and true are not numbers."""
    return value if type(value) in (int, float) else json.dumps(value)
