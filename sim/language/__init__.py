"""The reader's language: English as the source has it, others by the catalogues in this folder (docs/language.md).

Two ways lead from an English sentence to the reader. A report composes its sentences in the reader's language: `_` and
`ngettext` take the English text, which is the key of the catalogue, and the values of its named places. All below the
report knows of no language: its errors, reasons and notes are English, as files keep them, and where they come before a
reader `retold` finds the sentence of the catalogue that they were made of. What programs read, column names, ids and
JSON, is English for everybody.
"""

from sim.language.catalogue import ENGLISH, LANGUAGES, known_language
from sim.language.messages import N_, _, current, ngettext, speak, speaking
from sim.language.sentences import keep, release, retold

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
    "retold",
    "speak",
    "speaking",
]
