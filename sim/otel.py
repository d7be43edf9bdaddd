"""Token counts of OpenTelemetry spans: attributes that are read, and similar ones that are not."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

PROMPT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED_TOKENS = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")
"""Attributes of spans by OpenTelemetry's conventions for generative AI: today's name, then older ones."""
TOKEN_COUNT = re.compile(r"usage\.|token_?(count|usage)|(gen_ai|llm).*token", re.IGNORECASE)
"""Attributes that count tokens, by whatever convention."""
PART_OF_TOKENS = re.compile(r"total|cache|reasoning|details|cost|max|time|type|limit|request\.", re.IGNORECASE)
"""Attributes that hold a sum or a part of the counts above, or none of them."""


def unknown_token_keys(attributes: Iterable[str]) -> dict[str, str]:
    """Return the keys of a span that seem to count tokens but are not read, each with the nearest that is.

    >>> unknown_token_keys(["gen_ai.usage.input_token", "gen_ai.usage.total_tokens", "gen_ai.request.max_tokens"])
    {'gen_ai.usage.input_token': 'gen_ai.usage.input_tokens'}
    """
    known = (*PROMPT_TOKENS, *OUTPUT_TOKENS, *CACHED_TOKENS)
    return {
        key: get_close_matches(key, known[:4], n=1, cutoff=0.0)[0]
        for key in attributes
        if key not in known and TOKEN_COUNT.search(key) and not PART_OF_TOKENS.search(key)
    }


def first_of(attributes: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value of the first of *names* that is among *attributes*; None where none is."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)
