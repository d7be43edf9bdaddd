"""Brings the catalogues up to date with the source: `make language`.

New messages come in without a translation and are listed, those that are gone go out; a translator fills in the rest.
"""

import sys
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # started as a script

from sim.language import ENGLISH, LANGUAGES
from sim.language.catalogue import file_of
from tests.language.messages import found

HEADER = "# Messages of gpufleet; CONTRIBUTING.md says how to translate. `make language` brings this file up to date."


def updated(code: str) -> bytes:
    """The catalogue of the language *code* with the messages of the source, in alphabetical order."""
    file = file_of(code)
    catalog = Catalog(locale=LANGUAGES[code].replace("-", "_"), header_comment=HEADER, fuzzy=False)
    known = read_po(BytesIO(file.read_bytes()), locale=code) if file.exists() else Catalog(locale=code)
    for one in found().values():
        key = (one.text, one.plural) if one.plural else one.text
        before = known.get(one.text)
        same = before is not None and bool(one.plural) == isinstance(before.id, tuple)
        catalog.add(key, before.string if before is not None and same else None)
    out = BytesIO()
    write_po(out, catalog, width=0, omit_header=True, no_location=True, sort_output=True)
    head = f'{HEADER}\nmsgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n"Language: {code}\\n"\n'
    plural = '"Plural-Forms: nplurals=1; plural=0;\\n"\n\n'
    return (head + plural).encode() + out.getvalue()


if __name__ == "__main__":
    for code in LANGUAGES:
        if code == ENGLISH:
            continue
        file_of(code).parent.mkdir(parents=True, exist_ok=True)
        text = updated(code)
        file_of(code).write_bytes(text)
        messages = [one for one in read_po(BytesIO(text), locale=code) if one.id]
        waiting = [one.id for one in messages if not one.string or not any(one.string)]
        sys.stdout.writelines(f"no translation: {text!r}\n" for text in waiting)
        sys.stdout.write(f"{file_of(code)}: {len(waiting)} of {len(messages)} messages have no translation\n")
