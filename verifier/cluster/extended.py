"""MongoDB's Extended JSON, the format of filters in requests and of keys in answers.

The functions here have no side effects.
"""

from __future__ import annotations

from typing import Any

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.json_util import JSONMode, JSONOptions

from verifier.runtime import strict_json

# Dates outside Python's range must not raise.
_OPTIONS, _CANONICAL = (
    JSONOptions(
        json_mode=mode, tz_aware=False, datetime_conversion=DatetimeConversion.DATETIME_AUTO
    )
    for mode in (JSONMode.RELAXED, JSONMode.CANONICAL)
)
# Exceptions of the library for values that it does not understand.
_ERRORS = (BSONError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def read(data: str) -> Any:
    """Parse relaxed or canonical Extended JSON; values with a type in the text, as in `$numberLong`, get this type.

    A document with the field `$regex`, a query operator, stays a document. Raise ValueError if the text is invalid or
    has a repeated field, and RecursionError if it is nested too deeply.
    """
    try:
        return strict_json.read(data, _document)
    except _ERRORS as error:
        raise ValueError(str(error)) from error


def converted(value: Any) -> Any:
    """Convert the Extended JSON in a value of parsed JSON, as `read` does.

    Values that are already converted stay as they are. Raise ValueError if the value is invalid Extended JSON, and
    RecursionError if it is nested too deeply.
    """
    try:
        return _converted(value)
    except _ERRORS as error:
        raise ValueError(str(error)) from error


def _converted(value: Any) -> Any:
    if isinstance(value, dict):
        return _document({name: _converted(each) for name, each in value.items()})
    return [_converted(each) for each in value] if isinstance(value, list) else value


def canonical(value: Any) -> str:
    """Return the value as one line of canonical Extended JSON, from which `read` restores the exact types."""
    return json_util.dumps(value, json_options=_CANONICAL, allow_nan=False)


def written(value: Any) -> str:
    """Return the value as one line of relaxed Extended JSON, in which NaN is `{"$numberDouble": "NaN"}`."""
    return json_util.dumps(value, json_options=_OPTIONS, allow_nan=False)


def _document(document: dict[str, Any]) -> Any:
    # Keep `$regex`, which is a query operator here: the library would convert the document to a regular expression, and
    # lose its other fields.
    return document if "$regex" in document else json_util.object_hook(document, _OPTIONS)
