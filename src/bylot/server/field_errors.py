"""What is wrong with a field of a request, a setting or an entry of the configuration file.

msgspec finds the fault; here its message becomes one in words, with the choices that there are.
"""

import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bylot._text import join_words

TYPE_WORDS = {"int": "a whole number", "float": "a number", "str": "a text", "array": "a list"}
TYPE_WORDS |= {"object": "an object", "null": "null", "bool": "true or false"}
TYPE_NAMES = re.compile(rf"`((?:{'|'.join(TYPE_WORDS)}| \| )+)`")
FIELD_NAME = re.compile(r"[a-z]\w*", re.IGNORECASE)


def explain_fault(error: Exception, kind: Any) -> tuple[str, str, str]:
    """Return what is wrong with data that should be of a type; its place, such as
    `decisions[0].context`; and a name that no field of the object there has, if that is the fault.
    """
    said, _, place = str(error).partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".")
    _, _, unknown = said.rstrip("`").partition("unknown field `")
    text = explain_msgspec_error(said)
    if text.startswith("Invalid enum value") and not path.endswith("]"):
        words = list_words(find_type(kind, path))
        text = f"{text.replace('Invalid enum', 'invalid')}: expected {words}"
    return text, path, unknown


def explain_msgspec_error(text: str) -> str:
    """A message of msgspec with words for its types.

    >>> explain_msgspec_error("Expected `bool | float | null`, got `str`")
    'expected a number, null, true or false, got a text'
    """

    def name_types(found: re.Match[str]) -> str:
        kinds = [words for kind, words in TYPE_WORDS.items() if kind in found[1].split(" | ")]
        return join_words([word for words in kinds for word in words.split(" or ")], "or")

    return TYPE_NAMES.sub(name_types, text.replace("Expected `", "expected `"))


def find_type(kind: Any, path: str) -> Any:
    """Return the type of the field at a path, such as `decisions[0].context`."""
    for name in FIELD_NAME.findall(path):
        struct = find_struct(kind)
        names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
        kind = get_type_hints(struct)[names[name]]
    return kind


def find_struct(kind: Any) -> Any:
    """Return the first object type that a type names, such as that of the items of a list."""
    kinds = [kind]
    while not hasattr(kinds[0], "__struct_fields__"):
        kinds += get_args(kinds.pop(0))
    return kinds[0]


def list_words(kind: Any) -> str:
    """List the words that a value of a type may be, for a message; empty without any."""
    kinds = [kind, *get_args(kind)]
    words = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
    return join_words(map(repr, words), "or")
