"""Dataclasses as JSON text and back to equal values: the format of stored plans.

A dataclass is an object with its class name at "is" and all its fields. A tuple is an array; other containers are objects
that name their type. When a stored value lacks a field, the field gets its default, so a later version may add fields.
Fields with default values are written too, because the default may change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_IS, _OF = "is", "of"
_SHARED = "shared"


@dataclass(frozen=True)
class CustomFormat:
    """The format of a class that is not stored field by field."""

    to_plain: Callable[[Any], Any]
    """Returns JSON-compatible data, from which `from_plain` makes an equal value."""
    from_plain: Callable[[Any], Any]


@dataclass(frozen=True)
class JsonFormat:
    """Writes and reads values that consist of the given classes."""

    classes: Iterable[type]
    """Dataclasses and enumerations."""
    custom: dict[type, CustomFormat] = field(default_factory=dict)
    shared: frozenset[type] = frozenset()
    """Classes whose values are written once each, however often they occur."""

    def to_json(self, value: Any) -> str:
        """Raises TypeError if a part of the value has none of the classes."""
        writer = _Writer(self)
        plain = writer.plain(value)
        return json.dumps({_SHARED: writer.shared, "value": plain}, ensure_ascii=False, separators=(",", ":"))

    def from_json(self, text: str) -> Any:
        """Raises ValueError if the text is not from `to_json`, or has classes of a later version."""
        stored = json.loads(text)
        reader = _Reader(self)
        try:
            reader.shared = []
            for plain in stored[_SHARED]:
                reader.shared.append(reader.value(plain))
            return reader.value(stored["value"])
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"a stored plan cannot be read: {type(error).__name__} {error}") from error

    def by_name(self) -> dict[str, type]:
        return {kind.__name__: kind for kind in self.classes}


class _Writer:
    def __init__(self, format: JsonFormat) -> None:
        self._format = format
        self._known = set(format.classes)
        self._indexes: dict[Any, int] = {}
        self._by_identity: dict[int, tuple[Any, int]] = {}
        self.shared: list[Any] = []

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, list):
            return {_IS: "list", _OF: [self.plain(item) for item in value]}
        if isinstance(value, (set, frozenset)):
            return {_IS: "set", _OF: sorted((self.plain(item) for item in value), key=json.dumps)}
        if isinstance(value, dict):
            return {_IS: "dict", _OF: [[self.plain(key), self.plain(item)] for key, item in value.items()]}
        kind = type(value)
        if kind not in self._known:
            raise TypeError(f"{kind.__name__} cannot be part of a stored plan")
        return self._once(value) if kind in self._format.shared else self._whole(value)

    def _once(self, value: Any) -> Any:
        """A reference to the value among the shared ones, to which it is added the first time."""
        # keeps the value alive, so that no other object gets its id
        if (found := self._by_identity.get(id(value))) is not None:
            return {_IS: _SHARED, _OF: found[1]}
        index = self._indexes.get(value)
        if index is None:
            plain = self._whole(value)
            index = self._indexes[value] = len(self.shared)
            self.shared.append(plain)
        self._by_identity[id(value)] = (value, index)
        return {_IS: _SHARED, _OF: index}

    def _whole(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        if (custom := self._format.custom.get(kind)) is not None:
            return {_IS: kind.__name__, _OF: custom.to_plain(value)}
        if isinstance(value, Enum):
            return {_IS: kind.__name__, _OF: value.value}
        assert is_dataclass(value)
        return {_IS: kind.__name__, **{item.name: self.plain(getattr(value, item.name)) for item in fields(value)}}


class _Reader:
    def __init__(self, format: JsonFormat) -> None:
        self._format = format
        self._by_name = format.by_name()
        self.shared: list[Any] = []

    def value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(self.value(item) for item in plain)
        if not isinstance(plain, dict):
            return plain
        name = plain[_IS]
        if name == _SHARED:
            return self.shared[plain[_OF]]
        if name == "list":
            return [self.value(item) for item in plain[_OF]]
        if name == "set":
            return frozenset(self.value(item) for item in plain[_OF])
        if name == "dict":
            return {self.value(key): self.value(item) for key, item in plain[_OF]}
        kind = self._by_name[name]
        if (custom := self._format.custom.get(kind)) is not None:
            return custom.from_plain(plain[_OF])
        if issubclass(kind, Enum):
            return kind(plain[_OF])
        return kind(**{key: self.value(item) for key, item in plain.items() if key != _IS})
