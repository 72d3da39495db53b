from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Dict, Final, List, Literal, Mapping, NamedTuple, NewType, Optional, Tuple, TypedDict, Union

Layout = Literal["plain", "tagged"]
"""Whether keys have hash tags, as a Redis Cluster needs them."""

Shard = NewType("Shard", int)
"""One of the shards of a global key: see `Keys.shards`."""


class InvalidId(ValueError):
    """A text that cannot be an id."""


class _Rule(NamedTuple):
    name: str
    max: int
    reserved: Tuple[str, ...]
    form: str
    raw: str = ""
    least: int = 0
    most: int = 0
    step: int = 1
    words: Tuple[str, ...] = ()
    space: str = " "
    without: str = ""


_INT = re.compile(r"0|[1-9][0-9]{0,19}")
_HOUR = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})_([0-9]{2})")
_ENDPOINT = re.compile(
    r'[a-z]+|[A-Z-]+ /(?:[^\x00-\x20\x7f%?\[\]{}\\"]|%(?:[013-9A-F][0-9A-F]|2[0-689B-F]))*'
)
_SPECIAL = re.compile(r"""[\x00-\x20"%'*/:?\[\\\]{}\x7f]""")
_IN_PREFIX = r"""[^\x00-\x20\x7f-\x9f{}<>*?\[\]\\%"']"""
_PREFIX_FORM = re.compile(_IN_PREFIX + r"*(?:\{" + _IN_PREFIX + r"+\}" + _IN_PREFIX + r"*)?")
_SHARDS = re.compile(r"0*[1-9][0-9]{0,8}")


def _is_hour(text: str) -> bool:
    parts = _HOUR.fullmatch(text)
    if parts is None:
        return False
    year, month, day, hour = (int(part) for part in parts.groups())
    if not 1 <= month <= 12:
        return False
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    days = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    return 1 <= day <= days and hour <= 23


def _has_form(rule: _Rule, text: str) -> bool:
    if rule.form == "int":
        number = int(text) if _INT.fullmatch(text) else -1
        return rule.least <= number <= rule.most and number % rule.step == 0
    if rule.form == "one_of":
        return text in rule.words
    if rule.form == "hour":
        return _is_hour(text)
    if rule.form == "endpoint":
        return _ENDPOINT.fullmatch(text) is not None
    if rule.form == "verbatim":
        return not any(char in text for char in rule.without)
    return True


def _check(rule: _Rule, text: str) -> str:
    try:
        length = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidId(f"{text[:64]!a} is not a {rule.name}: it is not valid Unicode") from None
    if length == 0:
        raise InvalidId(f"{rule.name} is empty")
    if length > rule.max:
        raise InvalidId(f"{rule.name} is {length} bytes long, more than {rule.max}")
    if text in rule.reserved:
        raise InvalidId(f"{text!r} is reserved and cannot be a {rule.name}")
    if not _has_form(rule, text):
        raise InvalidId(f"{text[:64]!r} is not a {rule.name}")
    return text


def _part(rule: _Rule, id: str, encoding: Optional[_Rule] = None) -> str:
    """The encoding of an id in a key."""
    encoding = encoding or rule
    text = _check(rule, id)
    if encoding.form == "verbatim":
        return text
    raw = encoding.raw
    head = ""
    if encoding.form == "endpoint":
        raw = ":/%"
        method, space, path = text.partition(" ")
        if space:
            head, text = method + encoding.space, path

    def escape(found: re.Match[str]) -> str:
        char = found.group()
        return char if char in raw else f"%{ord(char):02X}"

    return head + _SPECIAL.sub(escape, text)


class _Space:
    _PREFIX: str
    _PREFIX_ENV: Optional[str]
    _SHARDS: int
    _SHARDS_ENV: Optional[str]
    _CHANNEL_ENV: Mapping[str, str]

    def __init__(self, layout: Layout = "plain", env: Optional[Mapping[str, str]] = None) -> None:
        """With the prefix, the shards and the names of channels that `env` sets, for example `os.environ`."""

        def read(name: Optional[str]) -> Optional[str]:
            return env.get(name) if env is not None and name is not None else None

        prefix = read(self._PREFIX_ENV)
        self.layout: Final = layout
        self.prefix: Final = self._PREFIX if prefix is None else prefix
        if not _PREFIX_FORM.fullmatch(self.prefix):
            raise ValueError(f"{self._PREFIX_ENV}: {self.prefix!r} cannot be a prefix")
        shards = read(self._SHARDS_ENV) or str(self._SHARDS)
        if not _SHARDS.fullmatch(shards):
            raise ValueError(f"{self._SHARDS_ENV}: {shards!r} is not a positive number")
        self._shard_count: Final = int(shards) if layout == "tagged" else 1
        self._channels: Final = {channel: read(name) for channel, name in self._CHANNEL_ENV.items()}

    def shards(self) -> List[Shard]:
        """Every shard of a global key; one in the plain layout."""
        return [Shard(number) for number in range(self._shard_count)]

    def shard(self, number: int) -> Shard:
        """The shard of this number."""
        if not 0 <= number < self._shard_count:
            raise ValueError(f"shard {number} does not exist: there are {self._shard_count}")
        return Shard(number)

    def shard_of(self, id: str) -> Shard:
        """The shard that an entity belongs to."""
        mask = 0xFFFF_FFFF_FFFF_FFFF
        hash = 0xCBF2_9CE4_8422_2325
        for byte in id.encode("utf-8"):
            hash = (hash ^ byte) * 0x0100_0000_01B3 & mask
        for factor in (0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53):
            hash = (hash ^ (hash >> 33)) * factor & mask
        hash ^= hash >> 33
        return Shard(hash % self._shard_count)

    def _channel(self, channel: str, name: str) -> str:
        renamed = self._channels.get(channel)
        return self.prefix + name if renamed is None else renamed
