"""Languages of reports: English in the source, others by the catalogues in this folder (CONTRIBUTING.md).

An English sentence reaches the reader in two ways. A report composes its sentences in the reader's language: `_` and
`ngettext` take the English text, which is the key of the catalogue, and the values of its named fields. The rooms below
the report are independent of language: their errors, reasons and notes are messages, English text with its template and
values, by which `translate_message` translates them when they are shown. Files store the English text alone: where it
is shown again, `translate_rendered` finds the template that it was made from. Column names, ids and
JSON, which programs read, are always English.
"""

from sim.language.catalogue import ENGLISH, LANGUAGES, known_language
from sim.language.messages import N_, _, current, ngettext, speak, speaking
from sim.language.sentences import keep, release, translate_message, translate_rendered

__all__ = [
    "ENGLISH",
    "LANGUAGES",
    "N_",
    "_",
    "current",
    "keep",
    "known_language",
    "ngettext",
    "release",
    "speak",
    "speaking",
    "translate_message",
    "translate_rendered",
]
