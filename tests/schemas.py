"""Makes the published schemas of ``--json`` from the models in ``adk_worker.cli.answers``.

``scripts/schemas`` writes them; a test fails where a file is not what its model says.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from adk_worker.cli import schemas
from adk_worker.cli.answers import ANSWERS

FOLDER = Path(schemas.__file__).parent


def made() -> dict[str, str]:
    """The text of each file, by its name."""
    return {schemas.file_name(command): _made(command) for command in ANSWERS}


def _made(command: str) -> str:
    schema = TypeAdapter(ANSWERS[command]).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"a line of adk {command} --json"}
    return json.dumps({**head, **{key: value for key, value in schema.items() if key != "title"}}, indent=2) + "\n"


def write() -> None:
    """Write the files, and remove those of commands that are no more."""
    texts = made()
    for stale in FOLDER.glob("*.json"):
        if stale.name not in texts:
            stale.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
