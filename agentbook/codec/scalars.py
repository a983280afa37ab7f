"""Values without parts: how each is stored, and how it is read back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import JsonValue

from agentbook.codec.tags import TAG, Fields, Unstorable
from agentbook.errors import JournalError

_LONG_INT = 4096
"""Bits beyond which an int is stored as text: JSON readers bound the digits of a number."""


def is_text(value: str) -> bool:
    """Whether a text has an UTF-8 form: it holds no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_short(value: int) -> bool:
    """Whether an int is stored as a JSON number."""
    return value.bit_length() <= _LONG_INT


def text_to_stored(value: str) -> JsonValue:
    return value if is_text(value) else {TAG: "str", "escaped": value.encode("unicode_escape").decode("ascii")}


def bytes_to_text(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def zone_to_stored(zone: tzinfo) -> JsonValue:
    """The stored form of a time zone.

    Raises:
        Unstorable: it is not a named zone or a fixed offset of the standard library.
    """
    if type(zone) is ZoneInfo:
        key = cast(str | None, zone.key)
        if key is not None:
            return key
    elif type(zone) is timezone:
        # A name that is not the offset's own is part of what the zone prints.
        name = zone.tzname(None)
        named = {} if name == timezone(zone.utcoffset(None)).tzname(None) else {"name": name}
        offset = zone.utcoffset(None)
        return {"days": offset.days, "seconds": offset.seconds, "microseconds": offset.microseconds, **named}
    name = f"{type(zone).__module__}.{type(zone).__name__}"
    raise Unstorable(f"its time zone is a {name}; use zoneinfo or datetime.timezone")


def zone_from_stored(stored: JsonValue) -> tzinfo:
    """Read a time zone back.

    Raises:
        JournalError: this machine does not know the zone.
    """
    if isinstance(stored, str):
        try:
            return ZoneInfo(stored)
        except ZoneInfoNotFoundError as error:
            raise JournalError(f"a stored time is in zone {stored!r}, unknown here: install tzdata") from error
    fields: dict[str, Any] = dict(stored) if isinstance(stored, dict) else {}
    offset = timedelta(fields["days"], fields["seconds"], fields["microseconds"])
    if "name" in fields:
        return timezone(offset, fields["name"])
    return timezone(offset) if offset else UTC


def _clock_to_stored(kind: str, value: datetime | time) -> Fields:
    # Wall time, zone and fold are the value; an offset is derived from them.
    stored: Fields = {TAG: kind, "value": value.replace(tzinfo=None).isoformat()}
    if value.tzinfo is not None:
        stored["zone"] = zone_to_stored(value.tzinfo)
    return {**stored, "fold": 1} if value.fold else stored


def _zone_and_fold(stored: Fields) -> dict[str, Any]:
    zone = zone_from_stored(stored["zone"]) if "zone" in stored else None
    return {"tzinfo": zone, "fold": 1 if "fold" in stored else 0}


def _timedelta_to_stored(value: timedelta) -> Fields:
    return {TAG: "timedelta", "days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}


def _path_to_stored(value: PurePath) -> Fields:
    return {TAG: "path", "kind": type(value).__name__, "value": text_to_stored(str(value))}


def _path_from_stored(stored: Fields) -> PurePath:
    kinds: dict[Any, type[PurePath]] = {cls.__name__: cls for cls in _PATHS}
    try:
        return kinds[stored["kind"]](_text(stored["value"]))
    except NotImplementedError as error:
        raise JournalError(f"a stored {stored['kind']} cannot exist on this system") from error


def _text(stored: JsonValue) -> str:
    return stored if isinstance(stored, str) else _str_from_stored(dict(stored) if isinstance(stored, dict) else {})


def _str_from_stored(stored: Fields) -> str:
    return str(stored["escaped"]).encode("ascii").decode("unicode_escape")


_PATHS = (PurePosixPath, PosixPath, PureWindowsPath, WindowsPath)

TO_STORED: dict[type, Callable[[Any], Fields]] = {
    datetime: lambda value: _clock_to_stored("datetime", value),
    time: lambda value: _clock_to_stored("time", value),
    date: lambda value: {TAG: "date", "value": value.isoformat()},
    timedelta: _timedelta_to_stored,
    Decimal: lambda value: {TAG: "Decimal", "value": str(value)},
    UUID: lambda value: {TAG: "UUID", "value": str(value)},
    bytes: lambda value: {TAG: "bytes", "base64": bytes_to_text(value)},
    bytearray: lambda value: {TAG: "bytearray", "base64": bytes_to_text(value)},
    complex: lambda value: {TAG: "complex", "real": repr(value.real), "imag": repr(value.imag)},
    **dict.fromkeys(_PATHS, _path_to_stored),
}
"""By exact type: a subclass would come back as its base."""

FROM_STORED: dict[str, Callable[[Any], object]] = {
    "str": _str_from_stored,
    "int": lambda stored: int(stored["hex"], 16),
    "float": lambda stored: float(stored["value"]),
    "datetime": lambda stored: datetime.fromisoformat(stored["value"]).replace(**_zone_and_fold(stored)),
    "time": lambda stored: time.fromisoformat(stored["value"]).replace(**_zone_and_fold(stored)),
    "date": lambda stored: date.fromisoformat(stored["value"]),
    "timedelta": lambda stored: timedelta(stored["days"], stored["seconds"], stored["microseconds"]),
    "Decimal": lambda stored: Decimal(stored["value"]),
    "UUID": lambda stored: UUID(stored["value"]),
    "bytes": lambda stored: base64.b64decode(stored["base64"]),
    "bytearray": lambda stored: bytearray(base64.b64decode(stored["base64"])),
    "complex": lambda stored: complex(float(stored["real"]), float(stored["imag"])),
    "path": _path_from_stored,
}
