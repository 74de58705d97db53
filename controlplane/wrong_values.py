"""What is wrong with a value, in plain words: of a setting, an option or a field of a body."""

from collections.abc import Mapping
from typing import Any

AS_TIME = "it must be a time in ISO 8601 with its timezone, such as 2027-11-26T08:00:00Z"

AN_OBJECT = "it must be an object"

NO_VALUE = {
    "int_parsing": "it must be a whole number",
    "int_type": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number",
    "bool_type": "it must be true or false",
    "float_parsing": "it must be a number",
    "bool_parsing": "it must be true or false",
    "greater_than_equal": "it must be at least {ge:.16g}",
    "greater_than": "it must be more than {gt:.16g}",
    "less_than_equal": "it must be at most {le:.16g}",
    "less_than": "it must be less than {lt:.16g}",
    "string_type": "it must be text",
    "list_type": "it must be a list",
    "too_long": "it may have at most {max_length} values",
    "too_short": "it has too few values: {min_length} at least",
    "timezone_aware": AS_TIME,
    "datetime_parsing": AS_TIME,
    "datetime_from_date_parsing": AS_TIME,
    "datetime_type": AS_TIME,
    "model_attributes_type": AN_OBJECT,
    "model_type": AN_OBJECT,
    "dict_type": AN_OBJECT,
    "string_too_long": "it may have at most {max_length} characters",
    "string_too_short": "it is empty",  # no text has to be longer than 1 character
}
"""Kinds of pydantic's errors to what is wrong with a value, without the value itself."""


def wrong_value(error: Mapping[str, Any]) -> str:
    """What is wrong with a setting or an option: one error of pydantic, in plain words."""
    if error["type"] in NO_VALUE:
        return NO_VALUE[error["type"]].format(**error.get("ctx", {}))
    return str(error["msg"]).removeprefix("Value error, ")


def as_share(name: str) -> str:
    """What is added where a value of that name is wrong: a share may be meant as a percentage."""
    return ", such as 0.97 for 97 %" if name == "accuracy" else ""
