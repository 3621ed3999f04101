"""Records: fields of JSON documents with strict types, and one sentence on what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, TypeVar
from unicodedata import category

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from otmoe.jsontext import Twice, fail, path_of, shown

SCHEMA_VERSION = 1

_LONGEST_SITE = 200


def _whole(value: Any) -> Any:
    """Let 3.0 pass for 3: languages with one type of number write that."""
    return int(value) if type(value) is float and value.is_integer() else value


def _text(allowed: str) -> Callable[[str], str]:
    """Refuse control characters, which could forge lines or colours on somebody's screen."""

    def check(text: str) -> str:
        for character in text:
            if category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in allowed:
                raise PydanticCustomError(
                    "otmoe",
                    "holds the control character U+{code}; remove it.",
                    {"code": f"{ord(character):04X}"},
                )
        return text

    return check


def _site(site: str) -> str:
    if not site.strip():
        raise PydanticCustomError("otmoe", "is empty; give the site a name.")
    if len(site) > _LONGEST_SITE:
        raise PydanticCustomError(
            "otmoe",
            "has {length} characters; give a name of at most {most}.",
            {"length": len(site), "most": _LONGEST_SITE},
        )
    return site


def _label(value: Any) -> Any:
    if isinstance(value, str):
        return _text("\t\n\r")(value)
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise PydanticCustomError(
        "otmoe", "is {value}; give text, a number, true or false.", {"value": shown(value)}
    )


# One wrong entry is enough to refuse a list: a million of them are not gathered.
T = TypeVar("T")
List = Annotated[list[T], Field(fail_fast=True)]
Row = List[float]
Matrix = List[Row]
Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, BeforeValidator(_whole)]
Line = Annotated[str, AfterValidator(_text(""))]
Name = Annotated[str, AfterValidator(_text("\t\n\r"))]
Label = Annotated[Any, AfterValidator(_label)]
Site = Annotated[Line, AfterValidator(_site)]


class Record(BaseModel):
    """Fields and their types, exactly: nothing converted, nothing more, nothing infinite."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


R = TypeVar("R", bound=Record)


def typed(
    schema: type[R], value: dict[str, Any], source: str, place: tuple[int | str, ...] = ()
) -> R:
    """Let pydantic check a part of a document, and report the first thing that it finds."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    twice = [error for error in errors if isinstance(error["input"], Twice)]
    first = (twice or errors)[0]
    if twice:
        place, problem = (*first["loc"], first["input"].key), "occurs twice; keep one of the two."
    elif first["type"] == "otmoe":
        place, problem = (*place, *first["loc"]), first["msg"]
    else:
        problem = _PROBLEMS.get(first["type"], f"is {{value}}; {first['msg']}.")
        found = {"value": shown(first["input"]), **first.get("ctx", {})}
        place, problem = (*place, *first["loc"]), problem.format(**found)
    fail(source, path_of(place), problem)


_PROBLEMS = {
    "missing": "is missing; add it.",
    "extra_forbidden": f"is not a field of schema version {SCHEMA_VERSION}; remove it.",
    "float_type": "is {value}; give a number.",
    "finite_number": "is {value}; give a finite number.",
    "greater_than": "is {value}; give a number above 0.",
    "int_type": "is {value}; give a whole number.",
    "bool_type": "is {value}; give true or false.",
    "string_type": "is {value}; give text.",
    "list_type": "is {value}; give a list.",
    "dict_type": "is {value}; give an object.",
    "model_type": "is {value}; give an object.",
    "literal_error": "is {value}; give {expected}.",
}
"""What to say about the errors of pydantic, by their names there."""


def check_version(document: dict[str, Any], source: str) -> None:
    """Refuse a document of another version of the schema, or of none."""
    version = document.get("schema_version")
    if type(version) not in (int, float) or version != SCHEMA_VERSION:
        fail(
            source,
            "schema_version",
            f"is {shown(version)}; this version of otmoe reads {SCHEMA_VERSION}: update otmoe, or "
            f"ask for the file in version {SCHEMA_VERSION}.",
        )


def check_distinct(values: list[Any], path: str, source: str) -> None:
    """Refuse a list that holds a value twice."""
    seen = set()
    for i, value in enumerate(values):
        if value in seen:
            fail(source, f"{path}[{i}]", f"is {shown(value)} a second time; give each once.")
        seen.add(value)
