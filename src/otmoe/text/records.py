"""Records: fields of JSON documents with strict types, and errors in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import islice
from math import isfinite, isnan
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from otmoe.text.errors import fail
from otmoe.text.names import plain, unseen
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Twice, path_of, shown

SCHEMA_VERSION = 1

LONGEST_NAME = 200
"""Maximum number of characters in the name of a site or class."""

LONGEST_SENTENCE = 5_000
"""Maximum number of characters of a sentence in a file."""

LARGEST = 1e30
"""Largest magnitude of numbers: squared predictors over variances must be finite."""

IGNORED = "x-"
"""Prefix of additional fields, which are allowed everywhere and ignored."""

# Characters that could forge lines, colours or writing direction on a screen; the second pattern
# allows tabs and line breaks. The escapes work both in `re` and in a JSON Schema.
_UNSEEN = r"\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_LINE = rf"[\u0000-\u001f{_UNSEEN}]"
_TEXT = rf"[\u0000-\u0008\u000b\u000c\u000e-\u001f{_UNSEEN}]"

_ROUNDING = 1e-6  # relative error of a sum whose terms were written with few digits
_PART = 100  # entries of an object checked at a time, so that few errors are collected


def _whole(value: Any) -> Any:
    """Accept 3.0 for 3, as written by languages with one type of number."""
    return int(value) if type(value) is float and value.is_integer() else value


def _without(pattern: str) -> Callable[[str], str]:
    """Return a function that refuses control characters."""
    forbidden = re.compile(pattern)

    def check(text: str) -> str:
        if found := forbidden.search(text):
            raise problem(Error.CONTROL_CHARACTER, character=f"{ord(found[0]):04X}")
        return text

    return check


def problem(code: Error, **facts: Any) -> PydanticCustomError:
    """Return the error that a validator raises: a code, and the facts of its sentence."""
    return PydanticCustomError("otmoe", "{problem}", {"problem": code.name, **facts})


def _site(site: str) -> str:
    if found := unseen(site):
        raise problem(Error.INVISIBLE_CHARACTER, character=f"{ord(found):04X}")
    site = plain(site)
    if not site.strip():
        raise problem(Error.SITE_UNNAMED)
    if len(site) > LONGEST_NAME:
        raise problem(Error.NAME_TOO_LONG, length=len(site), most=LONGEST_NAME)
    return site


def _seen(name: str) -> str:
    if found := unseen(name, joiners=True):
        raise problem(Error.INVISIBLE_CHARACTER, character=f"{ord(found):04X}")
    return name


def _label(value: Any) -> Any:
    if isinstance(value, str):
        return _without(_TEXT)(value)
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise problem(Error.LABEL_KIND, value=shown(value))


def _in_parts(value: Any, check: Callable[[Any], Any]) -> Any:
    """Check the entries of an object in parts, so that a million errors are not collected.

    Lists have ``fail_fast`` for that.
    """
    if not isinstance(value, dict):
        return check(value)
    items, found = iter(value.items()), dict[Any, Any]()
    while part := dict(islice(items, _PART)):
        found |= check(part)
    if len(found) < len(value):  # two keys are the same name once normalised
        raise problem(Error.NAMES_MEET)
    return found


def _schema(pattern: str, **more: Any) -> WithJsonSchema:
    """Return the JSON Schema of text without control characters."""
    return WithJsonSchema({"type": "string", **more, "not": {"type": "string", "pattern": pattern}})


T = TypeVar("T")
V = TypeVar("V")
List = Annotated[list[T], Field(fail_fast=True)]
Map = Annotated[dict[T, V], WrapValidator(_in_parts)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Row = List[Number]
Matrix = List[Row]
Positive = Annotated[float, Field(ge=1e-60, le=1e60)]  # squares of numbers, such as variances
Whole = Annotated[int, BeforeValidator(_whole)]
Version = Annotated[Whole, WithJsonSchema({"const": SCHEMA_VERSION})]
Line = Annotated[str, AfterValidator(_without(_LINE)), _schema(_LINE)]
Name = Annotated[str, AfterValidator(_without(_TEXT)), AfterValidator(_seen), _schema(_TEXT)]
Label = Annotated[Any, AfterValidator(_label), _schema(_TEXT, type=["string", "number", "boolean"])]
Site = Annotated[Line, AfterValidator(_site), _schema(_LINE, minLength=1, maxLength=LONGEST_NAME)]


class Record(BaseModel):
    """Fields with strict types: no conversion, no unknown fields, no infinite numbers.

    Further fields whose names begin with ``x-`` are allowed and ignored.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        frozen=True,
        json_schema_extra={"patternProperties": {f"^{IGNORED}": True}},
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        """Drop ignored fields, and refuse the first unknown one."""
        if not isinstance(value, dict) or value.keys() <= cls.model_fields.keys():
            return value
        value = {k: v for k, v in value.items() if not k.startswith(IGNORED)}
        for key in value:
            if key not in cls.model_fields:
                # as ASCII, since pydantic requires valid UTF-8
                raise PydanticCustomError("unknown", "is unknown", {"key": json.dumps(key)})
        return value


class NoticeRecord(Record):
    """A notice: a code for programs, a sentence, the sites concerned."""

    code: Line
    text: Line
    sites: List[Site] = []


SAID = "said"
"""The code of a sentence without a code."""

TEXTS = "texts"
"""The context in which `model_dump` returns only the texts of notices."""


def as_notice(told: Notice | str) -> Notice:
    """Return a notice, also for a bare sentence."""
    return Notice(SAID, told) if isinstance(told, str) else told


def notice_document(notice: Notice) -> dict[str, Any]:
    """Return a notice as it is written in a document."""
    sites = {"sites": list(notice.sites)} if notice.sites else {}
    return {"code": notice.code, "text": notice.text, **sites}


def _told(value: Any, check: Callable[[Any], Any]) -> Notice:
    """Return a notice, which is smaller than a record; a bare sentence is accepted too."""
    if isinstance(value, str):
        return as_notice(_without(_LINE)(value))
    record = check(value)
    return Notice(record.code, record.text, tuple(record.sites))


def _written(notice: Notice, info: SerializationInfo) -> Any:
    """Return a notice as it is written in a document, or only its text if requested."""
    return notice.text if info.context == TEXTS else notice_document(notice)


_SENTENCE = {"type": "string", "not": {"type": "string", "pattern": _LINE}}
Told = Annotated[
    Notice,
    GetPydanticSchema(lambda _, handler: handler(NoticeRecord)),
    WrapValidator(_told),
    PlainSerializer(_written),
    GetPydanticSchema(
        get_pydantic_json_schema=lambda core, handler: {"anyOf": [_SENTENCE, handler(core)]}
    ),
]


R = TypeVar("R", bound=Record)


def typed(
    schema: type[R], value: dict[str, Any], source: str, place: tuple[int | str, ...] = ()
) -> R:
    """Validate a part of a document with pydantic, and raise the first error found."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    twice = [error for error in errors if isinstance(error["input"], Twice)]
    first = (twice or errors)[0]
    where = (*place, *first["loc"])
    if twice:
        where = (*where, first["input"].key)
    elif first["type"] == "unknown":
        where = (*where, json.loads(first["ctx"]["key"]))
    if twice:
        fail(source, path_of(where), Error.KEY_TWICE)
    code, facts = _problem(first)
    fail(source, path_of(where), code, **facts)


def _problem(error: Any) -> tuple[Error, dict[str, Any]]:
    """Return an error of pydantic as a code and the facts of its sentence."""
    kind, value, context = error["type"], error["input"], dict(error.get("ctx", {}))
    if kind == "otmoe":
        return Error[context.pop("problem")], context
    if kind == "greater_than_equal" and value <= 0 < context["ge"]:
        return Error.FIELD_NOT_POSITIVE, {"value": shown(value)}
    if kind == "finite_number" and not isnan(value):
        return Error.FIELD_INFINITE, {}
    facts = {
        "value": shown(value),
        "version": SCHEMA_VERSION,
        "least": context.get("ge"),
        "most": context.get("le"),
        "choices": context.get("expected"),
        "reason": error["msg"],
    }
    return _PROBLEMS.get(kind, Error.FIELD_INVALID), facts


_PROBLEMS = {
    "missing": Error.FIELD_MISSING,
    "unknown": Error.FIELD_UNKNOWN,
    "float_type": Error.FIELD_NUMBER,
    "finite_number": Error.FIELD_NAN,
    "greater_than": Error.FIELD_NOT_POSITIVE,
    "greater_than_equal": Error.FIELD_TOO_SMALL,
    "less_than_equal": Error.FIELD_TOO_LARGE,
    "int_type": Error.FIELD_WHOLE,
    "bool_type": Error.FIELD_BOOLEAN,
    "string_type": Error.FIELD_TEXT,
    "string_unicode": Error.FIELD_TEXT,
    "list_type": Error.FIELD_LIST,
    "dict_type": Error.FIELD_OBJECT,
    "model_type": Error.FIELD_OBJECT,
    "literal_error": Error.FIELD_CHOICE,
}
"""Our errors, by the types of pydantic's, and a few of our own."""


def check_version(document: dict[str, Any], source: str) -> None:
    """Refuse a document of another version of the schema, or of none."""
    version = document.get("schema_version")
    if type(version) not in (int, float) or version != SCHEMA_VERSION:
        fail(
            source,
            "schema_version",
            Error.SCHEMA_VERSION,
            version=shown(version),
            known=SCHEMA_VERSION,
        )


def adds_up(total: float, wanted: float) -> bool:
    """Return whether a sum of numbers in a document is as expected, up to rounding."""
    return abs(total - wanted) <= _ROUNDING * wanted


def check_distinct(values: list[Any], path: str, source: str) -> None:
    """Refuse a list with repeated values."""
    seen = set()
    for i, value in enumerate(values):
        if value in seen:
            fail(source, f"{path}[{i}]", Error.SECOND_TIME, value=shown(value))
        seen.add(value)
