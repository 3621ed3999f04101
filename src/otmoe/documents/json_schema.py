"""The JSON Schema of every kind of file, generated from the records that validate it.

``python -m otmoe.documents.json_schema docs/schema`` writes them for the documentation.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from otmoe.data.features import FeaturesFileRecord
from otmoe.documents.masked_reply import MaskedReplyRecord
from otmoe.documents.message_record import LocalModelRecord
from otmoe.documents.model import experts_record
from otmoe.documents.model_file import ModelFileRecord
from otmoe.documents.reply import ReplyRecord
from otmoe.documents.request import RequestRecord
from otmoe.documents.state import StateRecord
from otmoe.model.experts import FAMILIES
from otmoe.model.experts.student import BY_NAME
from otmoe.text.outputs import write_whole
from otmoe.text.records import SCHEMA_VERSION, Record
from otmoe.text.strict_json import to_text

KINDS: dict[str, type[Record]] = {
    "local model": LocalModelRecord,
    "model": ModelFileRecord,
    "features": FeaturesFileRecord,
    "refine request": RequestRecord,
    "refine reply": ReplyRecord,
    "masked reply": MaskedReplyRecord,
    "refine state": StateRecord,
}
"""Records by what the field `otmoe` says."""


class _Untitled(GenerateJsonSchema):
    """Leaves out titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of file.

    Whatever it refuses, otmoe refuses. The converse does not hold: for example, a JSON Schema
    cannot express that the parts of a model agree in size.

    Parameters
    ----------
    kind : str
        What the field `otmoe` says, as in :data:`KINDS`.

    Returns
    -------
    dict

    Examples
    --------
    >>> json_schema("local model")["properties"]["n_samples"]
    {'maximum': 1e+60, 'minimum': 1e-60, 'type': 'number'}
    """
    schema = KINDS[kind].model_json_schema(schema_generator=_Untitled)
    schema["title"] = f"otmoe {kind}, schema version {SCHEMA_VERSION}"
    model = schema.get("$defs", {}).get("ModelRecord")
    if model is not None:
        name = "[a-z_]+[0-9]*"  # which may end in degrees of freedom
        several = {"type": "string", "pattern": rf"^{name}(\+{name})+$"}  # of as many responses
        names: dict[str, Any] = {family: {"const": family} for family in FAMILIES}
        names["student_t"] = {"enum": ["student_t", *BY_NAME]}
        known = {"enum": [*FAMILIES, *BY_NAME]}
        model["properties"]["family"] = {"anyOf": [known, several]}
        model["allOf"] = [_of_family(family, names[family]) for family in FAMILIES]
        model["allOf"].append(_of_family("gaussian+gaussian", several))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _of_family(family: str, name: dict[str, Any]) -> dict[str, Any]:
    """Return the rule that a model whose family has such a name has its parameters."""
    experts = experts_record(family).model_json_schema(schema_generator=_Untitled)
    return {
        "if": {"properties": {"family": name}},
        "then": {"properties": {"experts": experts}},
    }


def file_name(kind: str) -> str:
    """Return the name of the file that holds the schema of a kind."""
    return f"{kind.replace(' ', '_')}.schema.json"


if __name__ == "__main__":
    for kind in KINDS:
        write_whole(Path(sys.argv[1], file_name(kind)), to_text(json_schema(kind)) + "\n")
