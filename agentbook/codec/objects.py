"""Values of declared classes: enums, named tuples, dataclasses, pydantic models.

They are taken apart and put together field by field: no ``__init__``, validator or
default runs on the way back, so the value is the one that was stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from functools import cached_property, partial
from typing import Any, cast

from pydantic import AnyUrl, BaseModel, JsonValue, PlainSerializer, WrapSerializer
from pydantic_core import PydanticUndefined

from agentbook.codec.tags import TAG, Fields, Part, Unstorable, Whole, class_name, find_class
from agentbook.errors import JournalError, ValueNotJournalable


def to_stored(value: Any, part: Part) -> Fields | None:
    """The stored form of a value of a declared class; None if its class is of no kind known here.

    Raises:
        Unstorable: its class cannot be found again, or it holds more than its fields.
    """
    cls = cast(Any, type(cast(object, value)))
    if isinstance(value, Enum):
        return _enum_to_stored(value, part)
    elif isinstance(value, BaseModel):
        return _model_to_stored(value, part)
    elif dataclasses.is_dataclass(cls):
        return _dataclass_to_stored(value, part)
    elif _is_namedtuple(cls):
        if getattr(value, "__dict__", None):
            raise Unstorable(f"this {cls.__name__} has attributes beside its fields")
        fields: Fields = {name: part(item, f".{name}") for name, item in zip(cls._fields, value, strict=True)}
        return {TAG: "namedtuple", "class": class_name(cls), "fields": fields}
    elif isinstance(value, AnyUrl):
        return {TAG: "url", "class": class_name(cls), "value": str(value)}
    return None


def _enum_to_stored(value: Enum, part: Part) -> Fields:
    cls = type(value)
    # A combination of flags has no name, or one that no member has.
    name = cast(str | None, value.name)
    if name is not None and cls.__members__.get(name) is value:
        return {TAG: "enum", "class": class_name(cls), "name": name}
    elif isinstance(value, Flag):
        return {TAG: "flag", "class": class_name(cls), "value": part(value.value, ".value")}
    raise Unstorable(f"{cls.__name__} has no member of this name")


def _enum_from_stored(stored: Fields, _: Whole) -> Enum:
    cls = cast(type[Enum], find_class(stored["class"], lambda cls: issubclass(cls, Enum)))
    try:
        return cls.__members__[str(stored["name"])]
    except KeyError:
        raise JournalError(
            f"a stored value is {stored['class']}.{stored['name']}, which the class no longer has"
        ) from None


def _flag_from_stored(stored: Fields, whole: Whole) -> Enum:
    return cast(type[Enum], find_class(stored["class"], lambda cls: issubclass(cls, Flag)))(whole(stored["value"]))


def _is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cast(Any, cls), "_fields", None), tuple)


def _namedtuple_from_stored(stored: Fields, whole: Whole) -> object:
    cls: Any = find_class(stored["class"], _is_namedtuple)
    fields = _decoded(stored["fields"], whole)
    defaults: Mapping[str, object] = cls._field_defaults
    values = _completed(stored["class"], fields, {name: _default(defaults, name) for name in cls._fields})
    return cast(Any, tuple).__new__(cls, [values[name] for name in cls._fields])


def _dataclass_to_stored(value: Any, part: Part) -> Fields:
    cls = cast(Any, type(cast(object, value)))
    names = [field.name for field in dataclasses.fields(value)]
    _check_layout(cls)
    _check_state(value, names)
    fields: Fields = {name: part(getattr(value, name), f".{name}") for name in names}
    return {TAG: "dataclass", "class": class_name(cls), "fields": fields}


def _check_layout(cls: type) -> None:
    try:
        object.__new__(cls)
    except TypeError:
        raise Unstorable(f"{cls.__name__} also derives from a built-in class, whose content would be lost") from None


def _check_state(value: object, names: Iterable[str]) -> None:
    """Refuse attributes that are no fields: they would be lost. A cached property is computed again."""
    cls = type(value)
    slots: set[str] = set()
    for base in cls.__mro__:
        own: str | Iterable[str] = base.__dict__.get("__slots__", ())
        slots.update([own] if isinstance(own, str) else own)
    held = {*getattr(value, "__dict__", ()), *(slot for slot in slots if hasattr(value, slot))}
    lost = sorted(held - set(names) - {"__dict__", "__weakref__"})
    lost = [name for name in lost if not isinstance(getattr(cls, name, None), cached_property)]
    if lost:
        raise Unstorable(f"this {cls.__name__} has attributes beside its fields: {', '.join(lost)}")


def _dataclass_from_stored(stored: Fields, whole: Whole) -> object:
    cls = find_class(stored["class"], dataclasses.is_dataclass)
    declared: dict[str, Callable[[], object] | None] = {}
    for field in dataclasses.fields(cast(Any, cls)):
        if field.default is not dataclasses.MISSING:
            declared[field.name] = _constant(field.default)
        else:
            declared[field.name] = None if field.default_factory is dataclasses.MISSING else field.default_factory
    value = cast(object, cast(Any, object).__new__(cls))
    for name, item in _completed(stored["class"], _decoded(stored["fields"], whole), declared).items():
        object.__setattr__(value, name, item)
    return value


def _model_to_stored(value: BaseModel, part: Part) -> Fields:
    cls = type(value)
    name = class_name(cls)
    # The author's own serialiser speaks first: if it raises, its error is what a person must see.
    dumped = cast(JsonValue, value.model_dump(mode="json")) if _has_serialiser(cls) else None
    try:
        return {TAG: "pydantic", "class": name, **_model_parts(value, part)}
    except (ValueNotJournalable, Unstorable):
        if dumped is None or not _comes_back(dumped, value):
            raise
        return {TAG: "pydantic", "class": name, "dumped": part(dumped, "")}


def _comes_back(dumped: JsonValue, value: BaseModel) -> bool:
    try:
        back = type(value).model_validate(dumped)
    except (ValueError, TypeError):
        return False
    return back == value and _kinds(back) == _kinds(value)


def _kinds(value: BaseModel) -> list[type]:
    return [type(cast(object, item)) for item in value.__dict__.values()]


def _has_serialiser(cls: type[BaseModel]) -> bool:
    own = cls.__pydantic_decorators__
    return bool(own.field_serializers or own.model_serializers) or any(
        isinstance(mark, PlainSerializer | WrapSerializer)
        for field in cls.model_fields.values()
        for mark in field.metadata
    )


def _model_parts(value: BaseModel, part: Part) -> Fields:
    cls = type(value)
    names = list(cls.model_fields)
    missing = [name for name in names if name not in value.__dict__]
    if missing:
        raise Unstorable(f"this {cls.__name__} was constructed without {', '.join(missing)}")
    _check_state(value, [*names, *BaseModel.__slots__])
    parts: Fields = {"fields": {name: part(value.__dict__[name], f".{name}") for name in names}}
    unset = sorted(set(names) - value.model_fields_set)
    if unset:
        parts["unset"] = [*unset]
    if value.__pydantic_extra__:
        parts["extra"] = part(value.__pydantic_extra__, "")
    if value.__pydantic_private__:
        parts["private"] = part(value.__pydantic_private__, "")
    return parts


def _model_from_stored(stored: Fields, whole: Whole) -> BaseModel:
    cls = cast(type[BaseModel], find_class(stored["class"], lambda cls: issubclass(cls, BaseModel)))
    if "dumped" in stored:
        return cls.model_validate(whole(stored["dumped"]))
    declared: dict[str, Callable[[], object] | None] = {
        name: None if field.is_required() else partial(field.get_default, call_default_factory=True, validated_data={})
        for name, field in cls.model_fields.items()
    }
    given = _decoded(stored["fields"], whole)
    fields = _completed(stored["class"], given, declared)
    extra: dict[str, object] = whole(stored.get("extra", {}))
    defaults = {name: attribute.get_default() for name, attribute in cls.__private_attributes__.items()}
    private: dict[str, object] = {**defaults, **whole(stored.get("private", {}))}
    private = {name: item for name, item in private.items() if item is not PydanticUndefined}
    value = cls.__new__(cls)
    unset = cast(list[str], stored.get("unset", []))
    object.__setattr__(value, "__dict__", fields)
    object.__setattr__(value, "__pydantic_fields_set__", ({*given} - {*unset}) | {*extra})
    if not cls.__pydantic_root_model__:
        object.__setattr__(value, "__pydantic_extra__", extra if cls.model_config.get("extra") == "allow" else None)
        object.__setattr__(value, "__pydantic_private__", private if cls.__private_attributes__ else None)
    return value


def _url_from_stored(stored: Fields, _: Whole) -> object:
    return find_class(stored["class"], lambda cls: issubclass(cls, AnyUrl))(stored["value"])


def _decoded(stored: JsonValue, whole: Whole) -> dict[str, object]:
    assert isinstance(stored, dict)
    return {name: whole(item) for name, item in stored.items()}


def _constant(value: object) -> Callable[[], object]:
    return lambda: value


def _default(defaults: Mapping[str, object], name: str) -> Callable[[], object] | None:
    return _constant(defaults[name]) if name in defaults else None


def _completed(
    name: JsonValue, given: dict[str, object], declared: Mapping[str, Callable[[], object] | None]
) -> dict[str, object]:
    """What was stored, in the class's order, with the defaults of fields that the class has gained since."""
    unknown = sorted(set(given) - set(declared))
    missing = sorted(field for field, default in declared.items() if default is None and field not in given)
    if unknown or missing:
        changes = [f"no field {field} any more" for field in unknown]
        changes += [f"a new field {field} without a default" for field in missing]
        raise JournalError(f"a stored value is of class {name}, which has changed since: it has {', '.join(changes)}")
    return {
        field: given[field] if field in given else cast(Callable[[], object], default)()
        for field, default in declared.items()
    }


FROM_STORED: dict[str, Callable[[Any, Whole], object]] = {
    "enum": _enum_from_stored,
    "flag": _flag_from_stored,
    "namedtuple": _namedtuple_from_stored,
    "dataclass": _dataclass_from_stored,
    "pydantic": _model_from_stored,
    "url": _url_from_stored,
}
