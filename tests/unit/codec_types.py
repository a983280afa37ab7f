"""What the codec's tests store, and how they compare it. Classes at the top level of a module are found again."""

import enum
from collections import namedtuple
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, time
from functools import cached_property
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    JsonValue,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    field_serializer,
)
from pydantic_core import from_json, to_json

from agentbook.codec import decode, encode


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias, on purpose
    BLUE = ("b", 2)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: object
    y: object = 0


@dataclass(frozen=True, slots=True)
class Frozen:
    items: tuple = ()
    hidden: object = field(default=None, repr=False, compare=False)


@dataclass
class Checked:
    n: int
    doubled: int = field(init=False)

    def __post_init__(self):
        self.doubled = 2 * self.n

    @cached_property
    def tripled(self):
        return 3 * self.n


@dataclass
class Listy(list):
    n: int = 0


class Pair(NamedTuple):
    left: object
    right: object = None


OldPair = namedtuple("OldPair", "a b")


class Item(BaseModel):
    name: str
    price: Any = None
    tags: set[str] = set()
    link: HttpUrl | None = None


class Basket(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    first: Item = Field(alias="erster")
    rest: list[Item] = []
    _seen: int = PrivateAttr(default=0)
    _later: int


class Doubling(BaseModel):
    """A validator that would change the value if it ran again."""

    n: int

    def model_post_init(self, context):
        self.n *= 2


class Numbers(RootModel[list[int]]):
    pass


class Raising(BaseModel):
    n: int = 0

    @field_serializer("n")
    def fail(self, n):
        raise LookupError("serialiser down")


class Rounding(BaseModel):
    x: float

    @field_serializer("x")
    def rounded(self, x):
        return round(x, 1)


class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees

    def __eq__(self, other):
        return isinstance(other, Celsius) and self.degrees == other.degrees

    def __hash__(self):
        return hash(self.degrees)

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(lambda v: v if isinstance(v, cls) else cls(v))


class Weather(BaseModel):
    now: Annotated[Celsius, PlainSerializer(lambda value: value.degrees)]
    note: Any = None
    hour: int = Field(default=0, ge=0)


class Climate(BaseModel):
    now: Celsius


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


class IntBox(Box[int]):
    pass


class MyDict(dict):
    pass


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyList(list):
    pass


class Stored(BaseModel):
    """As a record holds a value."""

    value: JsonValue


def through_the_journal(value):
    data = to_json(Stored(value=encode(value)))
    return decode(Stored.model_validate(from_json(data, allow_inf_nan=False)).value)


def spelled(value):
    """A spelling that tells apart what `==` does not: types, -0.0, NaN, fold, zone, field by field."""
    if isinstance(value, dict):
        return (type(value), [(spelled(key), spelled(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [spelled(item) for item in value])
    if isinstance(value, set | frozenset):
        return (type(value), sorted(map(repr, map(spelled, value))))
    if isinstance(value, datetime | time):
        return (type(value), repr(value), value.fold, type(value.tzinfo), repr(value.tzinfo))
    if isinstance(value, BaseModel):
        private = value.__pydantic_private__
        return (
            type(value),
            spelled(value.__dict__),
            value.model_fields_set,
            spelled(value.model_extra),
            spelled(private),
        )
    if is_dataclass(value):
        return (type(value), [spelled(getattr(value, field.name)) for field in fields(value)])
    return (type(value), hex(value) if type(value) is int else repr(value))
