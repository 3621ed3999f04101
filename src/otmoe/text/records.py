"""Records: fields of JSON documents with strict types, and one sentence on what is wrong."""

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
"""Characters that the name of a site or of a class may have."""

LONGEST_SENTENCE = 5_000
"""Characters of a sentence that a file holds."""

LARGEST = 1e30
"""Magnitude up to which numbers are read: squared predictors over variances have to be finite."""

IGNORED = "x-"
"""How the names of fields begin that everybody may add and that nobody reads."""

# What could forge lines, colours or the direction of writing on somebody's screen; the second also
# lets tabs and line breaks pass. The backslashes are for `re` and for a JSON Schema alike.
_UNSEEN = r"\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_LINE = rf"[\u0000-\u001f{_UNSEEN}]"
_TEXT = rf"[\u0000-\u0008\u000b\u000c\u000e-\u001f{_UNSEEN}]"

_ROUNDING = 1e-6  # relative: what a sum may lose where its terms were written with few digits
_PART = 100  # entries of an object that are checked at a time, so that few errors are gathered


def _whole(value: Any) -> Any:
    """Let 3.0 pass for 3: languages with one type of number write that."""
    return int(value) if type(value) is float and value.is_integer() else value


def _without(pattern: str) -> Callable[[str], str]:
    """Refuse control characters."""
    forbidden = re.compile(pattern)

    def check(text: str) -> str:
        if found := forbidden.search(text):
            raise problem(Error.CONTROL_CHARACTER, character=f"{ord(found[0]):04X}")
        return text

    return check


def problem(code: Error, **facts: Any) -> PydanticCustomError:
    """Return what a validator raises: a code, and the facts that its sentence names."""
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
    """Check the entries of an object some at a time, so that a million wrong ones are not gathered.

    Lists have ``fail_fast`` for that.
    """
    if not isinstance(value, dict):
        return check(value)
    items, found = iter(value.items()), dict[Any, Any]()
    while part := dict(islice(items, _PART)):
        found |= check(part)
    if len(found) < len(value):  # two keys are the same name
        raise problem(Error.NAMES_MEET)
    return found


def _schema(pattern: str, **more: Any) -> WithJsonSchema:
    """Say in a JSON Schema that text holds no control characters."""
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
    """Fields and their types, exactly: nothing converted, nothing more, nothing infinite.

    Fields whose names begin with ``x-`` may stand beside them and are not looked at.
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
        """Leave out what is to be ignored, and refuse the first field that is not known."""
        if not isinstance(value, dict) or value.keys() <= cls.model_fields.keys():
            return value
        value = {k: v for k, v in value.items() if not k.startswith(IGNORED)}
        for key in value:
            if key not in cls.model_fields:
                # as ASCII: pydantic wants text that UTF-8 can hold
                raise PydanticCustomError("unknown", "is unknown", {"key": json.dumps(key)})
        return value


class NoticeRecord(Record):
    """Something to be told: a code for programs, a sentence, the sites it is about."""

    code: Line
    text: Line
    sites: List[Site] = []


SAID = "said"
"""The code of a sentence that came without one."""

TEXTS = "texts"
"""The context in which `model_dump` gives the texts of notices alone."""


def as_notice(told: Notice | str) -> Notice:
    """Return a notice, also of a bare sentence."""
    return Notice(SAID, told) if isinstance(told, str) else told


def notice_document(notice: Notice) -> dict[str, Any]:
    """Return a notice as it stands in a document."""
    sites = {"sites": list(notice.sites)} if notice.sites else {}
    return {"code": notice.code, "text": notice.text, **sites}


def _told(value: Any, check: Callable[[Any], Any]) -> Notice:
    """Return a notice, which takes little room; writers in other languages have no codes."""
    if isinstance(value, str):
        return as_notice(_without(_LINE)(value))
    record = check(value)
    return Notice(record.code, record.text, tuple(record.sites))


def _written(notice: Notice, info: SerializationInfo) -> Any:
    """Return a notice as it stands in a document, or its text alone where that is asked for."""
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
    """Let pydantic check a part of a document, and report the first thing that it finds."""
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
    """Return what pydantic has found as a code, and the facts that its sentence names."""
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
"""What the errors of pydantic are, by their names there, and a few of our own."""


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
    """Say whether numbers of a document have the sum they should have, but for rounding."""
    return abs(total - wanted) <= _ROUNDING * wanted


def check_distinct(values: list[Any], path: str, source: str) -> None:
    """Refuse a list that holds a value twice."""
    seen = set()
    for i, value in enumerate(values):
        if value in seen:
            fail(source, f"{path}[{i}]", Error.SECOND_TIME, value=shown(value))
        seen.add(value)
