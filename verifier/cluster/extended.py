"""MongoDB's Extended JSON, in which filters come and keys of documents are told. Pure."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.json_util import JSONMode, JSONOptions

# Dates outside Python's range must not raise.
_OPTIONS = JSONOptions(
    json_mode=JSONMode.RELAXED, tz_aware=False, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
# What the library raises for values that it does not understand.
_ERRORS = (BSONError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def read(data: str) -> Any:
    """What the text means, relaxed or canonical, each value of its exact type. Raises ValueError, RecursionError."""
    try:
        return json.loads(data, object_pairs_hook=_document, parse_constant=_refuse_constant)
    except _ERRORS as error:
        raise ValueError(str(error)) from error


def written(value: Any) -> str:
    """The value as one line of relaxed Extended JSON, in which NaN is a text."""
    return json_util.dumps(value, json_options=_OPTIONS, allow_nan=False)


def _document(pairs: list[tuple[str, Any]]) -> Any:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError(f"a field is given twice among {', '.join(document)}")
    # An operator of queries: the library would take it for a value, and lose what stands beside it.
    return document if "$regex" in document else json_util.object_hook(document, _OPTIONS)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is no JSON, write {{"$numberDouble": "{name}"}}')
