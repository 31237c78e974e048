"""Names of registered models, and the tags that they may carry."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from cerebro_db.configs.messages import MAX_DESCRIPTION, check_text, shown
from cerebro_db.errors import InvalidArgument

# What begins so is no table; a table of such a name can still be named in double quotes.
PREFIX = "model:"
_WORD = r"[^\W\d][\w-]{0,62}"
# Neither a name nor an alias has a dot: whatever is before the last one is a role's name.
_REFERENCE = re.compile(
    rf"(?:(?P<owner>.+)\.)?(?P<name>{_WORD})(?:@(?P<alias>{_WORD})|:(?P<version>\d{{1,9}}))?",
    re.DOTALL,
)
_WORDS = "a letter or _, then up to 62 letters, digits, _ and -"
_FORMS = "name, name@alias or name:version, each also as owner.name"
_MAX_TAGS, _MAX_TAG = 64, 1000


@dataclass(frozen=True)
class ModelReference:
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
        return replace(self, alias=None, version=version)

    def __str__(self) -> str:
        owner = "" if self.owner is None else f"{self.owner}."
        alias = "" if self.alias is None else f"@{self.alias}"
        version = "" if self.version is None else f":{self.version}"
        return f"{PREFIX}{owner}{self.name}{alias}{version}"


def is_registered(text: str | None) -> bool:
    """True if a text that may name a table names a registered model."""
    return text is not None and text.lstrip().startswith(PREFIX)


def model_reference(text: str | None, role: str) -> ModelReference:
    """Reads ``model:digits``, ``model:digits@champion``, ``alice.digits:3``; the prefix may be left out."""
    if text is None:
        raise InvalidArgument(f"{role}: got NULL; allowed: {_FORMS}")
    match = _REFERENCE.fullmatch(text.strip().removeprefix(PREFIX))
    if match is None:
        raise InvalidArgument(
            f"{role}: got {shown(text)}; allowed: {_FORMS}", hint=f"a name or an alias is {_WORDS}"
        )
    version = match["version"]
    return ModelReference(
        match["owner"], match["name"], match["alias"], None if version is None else int(version)
    )


def model_name(text: str | None, role: str) -> ModelReference:
    """Reads the name of a model as a whole."""
    reference = model_reference(text, role)
    if not reference.is_plain:
        raise InvalidArgument(
            f"{role}: got {shown(text)}; allowed: the name of a model, without alias or version"
        )
    return reference


def alias_name(text: str | None) -> str:
    """Reads an alias."""
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
