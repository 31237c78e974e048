"""Names that are no part of Keras: registered functions, registered models with their tags, formats of exported models."""

from __future__ import annotations

import json
import re
from enum import StrEnum

from msgspec import Struct, structs

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.grammar import Call
from cerebro_db.configs.messages import MAX_DESCRIPTION, check_text, shown
from cerebro_db.errors import InvalidArgument

# Names of Keras and of registered functions never meet: these are written custom.name.
PREFIX = "custom."
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Nothing private, so no __globals__ and the like either.
_PATH = re.compile(r"(?!_)\w+(\.(?!_)\w+)*:(?!_)\w+", re.ASCII)
_LONGEST_PATH = 200


def is_custom(name: str) -> bool:
    """True if a name in parameters means a registered function."""
    return name.startswith(PREFIX)


def bare_name(name: str) -> str:
    """The name under which a function is registered."""
    return name.removeprefix(PREFIX)


def check_name(name: str | None, what: str = "name") -> str:
    """A name that a function may have.

    Raises:
        InvalidArgument: it is none.
    """
    if name is None or not _NAME.fullmatch(name):
        got = "NULL" if name is None else shown(name)
        raise InvalidArgument(
            f"{what}: got {got}; allowed: lower-case letters, digits and _, beginning with a letter"
        )
    return name


def parse_custom(call: Call, what: str) -> str:
    """The name, with its prefix, of a call that is one.

    Raises:
        InvalidArgument: nothing can have that name, or it has arguments.
    """
    check_name(bare_name(call.name), what)
    if call.arguments or call.values:
        raise InvalidArgument(
            f"{what}: got {shown(call)}; a registered function is named without arguments"
        )
    return call.name


def check_path(path: str | None) -> tuple[str, str]:
    """Module and function of an import path.

    Raises:
        InvalidArgument: it is none.
    """
    if path is None or len(path) > _LONGEST_PATH or not _PATH.fullmatch(path):
        got = "NULL" if path is None else shown(path)
        raise InvalidArgument(
            f"path: got {got}; allowed: module and function of an installed package, such as "
            "'package.module:function', none of them beginning with _"
        )
    module, _, function = path.partition(":")
    return module, function


# -- registered models -----------------------------------------------------------
# What begins so is no table; a table of such a name can still be named in double quotes.
MODEL_PREFIX = "model:"
_WORD = r"[^\W\d][\w-]{0,62}"
# Neither a name nor an alias has a dot: whatever is before the last one is a role's name.
_REFERENCE = re.compile(
    rf"(?:(?P<owner>.+)\.)?(?P<name>{_WORD})(?:@(?P<alias>{_WORD})|:(?P<version>\d{{1,9}}))?",
    re.DOTALL,
)
_WORDS = "a letter or _, then up to 62 letters, digits, _ and -"
_FORMS = "name, name@alias or name:version, each also as owner.name"
_MAX_TAGS, _MAX_TAG = 64, 1000


class ModelReference(Struct, frozen=True):
    """A registered model as a user names it.

    Attributes:
        owner: a role's name; None for the caller.
        alias, version: at most one of them; where there is none, the latest version is meant.
    """

    owner: str | None
    name: str
    alias: str | None = None
    version: int | None = None

    @property
    def is_plain(self) -> bool:
        """True if the model is meant as a whole."""
        return self.alias is None and self.version is None

    def at(self, version: int) -> ModelReference:
        """A version of the same model."""
        return structs.replace(self, alias=None, version=version)

    def __str__(self) -> str:
        owner = "" if self.owner is None else f"{self.owner}."
        alias = "" if self.alias is None else f"@{self.alias}"
        version = "" if self.version is None else f":{self.version}"
        return f"{MODEL_PREFIX}{owner}{self.name}{alias}{version}"


def is_registered(text: str | None) -> bool:
    """True if a text that may name a table names a registered model."""
    return text is not None and text.lstrip().startswith(MODEL_PREFIX)


def model_reference(text: str | None, role: str) -> ModelReference:
    """Read ``model:digits``, ``model:digits@champion``, ``alice.digits:3``; the prefix may be left out."""
    if text is None:
        raise InvalidArgument(f"{role}: got NULL; allowed: {_FORMS}")
    match = _REFERENCE.fullmatch(text.strip().removeprefix(MODEL_PREFIX))
    if match is None:
        raise InvalidArgument(
            f"{role}: got {shown(text)}; allowed: {_FORMS}", hint=f"a name or an alias is {_WORDS}"
        )
    version = match["version"]
    return ModelReference(
        match["owner"], match["name"], match["alias"], None if version is None else int(version)
    )


def model_name(text: str | None, role: str) -> ModelReference:
    """Read the name of a model as a whole."""
    reference = model_reference(text, role)
    if not reference.is_plain:
        raise InvalidArgument(
            f"{role}: got {shown(text)}; allowed: the name of a model, without alias or version"
        )
    return reference


def alias_name(text: str | None) -> str:
    """Read an alias."""
    if text is None or not re.fullmatch(_WORD, text):
        got = "NULL" if text is None else shown(text)
        raise InvalidArgument(f"alias: got {got}; allowed: {_WORDS}")
    return text


def checked_tags(text: str | None) -> str | None:
    """The tags of a model as canonical JSON: names, and texts, numbers or truth values."""
    if text is None:
        return None
    allowed = f"a JSON object of up to {_MAX_TAGS} texts, numbers, true and false"
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"tags: got {shown(text)}; allowed: {allowed}") from None
    good = isinstance(tags, dict) and len(tags) <= _MAX_TAGS
    if not good or not all(_is_tag(name, value) for name, value in tags.items()):
        raise InvalidArgument(
            f"tags: got {shown(text)}; allowed: {allowed}, each up to {_MAX_TAG} characters"
        )
    return json.dumps(tags, sort_keys=True, ensure_ascii=False)


def checked_description(text: str | None) -> str | None:
    """The description of a model."""
    check_text("description", text, MAX_DESCRIPTION)
    return text


def _is_tag(name: str, value: object) -> bool:
    texts = [name, value] if isinstance(value, str) else [name]
    whole = all(len(text) <= _MAX_TAG and "\0" not in text and text.isprintable() for text in texts)
    return whole and isinstance(value, str | int | float | bool)


# -- exported models -------------------------------------------------------------
class Format(StrEnum):
    """File formats of an exported model: Keras' own file, ONNX, NumPy's arrays, safetensors, and PyTorch's own file."""

    KERAS = "keras"
    ONNX = "onnx"
    NPZ = "npz"
    SAFETENSORS = "safetensors"
    PT2 = "pt2"


def export_format(text: str | None) -> Format:
    """Read ``format``."""
    name = (text or "").strip().lower().removeprefix(".")
    if name in list(Format):
        return Format(name)
    got = "NULL" if text is None else shown(text)
    allowed = ", ".join(repr(str(known)) for known in Format)
    hint = nearest(name[:80], Format) if name else None
    raise InvalidArgument(f"format: got {got}; allowed: {allowed}", hint=hint)
