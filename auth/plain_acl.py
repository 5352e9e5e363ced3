"""RocketMQ's plain_acl.yml (access control 1.0, up to 5.2), read and translated into users and policies.

The translation is RocketMQ's own (migrateAuthFromV1Enabled): admins become super users, permissions of topics and
groups become Custom entries, default permissions Default ones. White lists are not translated, for they let requests
pass without a signature. The file is YAML of a simple kind: maps, lists and texts in block style, and no more is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from auth.policy import Policies, PolicyEntry, PolicyError, make_entry
from auth.user import User, UserType

_DENY: Final = "DENY"


class PlainAclError(ValueError):
    """The file cannot be read. The message names the line and shows no secret."""


class Account(msgspec.Struct, frozen=True):
    """`left_out`: what the file says of it and access control 2.0 has no place for."""

    user: User
    policies: Policies
    left_out: tuple[str, ...]


class PlainAcl(msgspec.Struct, frozen=True):
    accounts: tuple[Account, ...]
    left_out: tuple[str, ...]


def read_plain_acl(text: str) -> PlainAcl:
    """Raises PlainAclError."""
    reader = _Reader(text)
    found = reader.read()
    if not isinstance(found, dict) or not isinstance(accounts := found.get("accounts") or [], list):
        raise PlainAclError("a list of accounts is expected, as in RocketMQ's plain_acl.yml")
    white = found.get("globalWhiteRemoteAddresses") or []
    left_out = ("globalWhiteRemoteAddresses",) if white else ()
    return PlainAcl(tuple(_account(number, item) for number, item in enumerate(accounts, 1)), left_out)


def _account(number: int, found: object) -> Account:
    if not isinstance(found, dict):
        raise PlainAclError(f"account {number} is no map")
    names = [found.get(key) for key in ("accessKey", "secretKey")]
    if not all(isinstance(name, str) and name for name in names):
        raise PlainAclError(f"account {number} has no accessKey or no secretKey")
    is_admin = str(found.get("admin") or "").lower() == "true"
    user = User(str(names[0]), str(names[1]), UserType.SUPER if is_admin else UserType.NORMAL)
    try:
        custom = _entries("Topic", _perms(found, "topicPerms")) | _entries(
            "Group", _perms(found, "groupPerms")
        )
        default: dict[str, PolicyEntry] = {}
        for kind, key in (("Topic", "defaultTopicPerm"), ("Group", "defaultGroupPerm")):
            if perm := str(found.get(key) or "").strip():
                default |= _entries(kind, {"*": perm})
    except PolicyError as error:
        raise PlainAclError(f"account {user.username}: {error}") from None
    left_out = ("whiteRemoteAddress",) if found.get("whiteRemoteAddress") else ()
    return Account(user, Policies(custom, default), left_out)


def _perms(found: Mapping[str, object], key: str) -> dict[str, str]:
    items = found.get(key) or []
    if not isinstance(items, list):
        raise PolicyError(f"{key} is no list")
    perms = {}
    for item in items:
        name, equals, perm = str(item).partition("=")
        if not equals:
            raise PolicyError(f"{key}: {item!r} is not name=PUB|SUB")
        perms[name.strip()] = perm.strip()
    return perms


def _entries(kind: str, perms: Mapping[str, str]) -> dict[str, PolicyEntry]:
    made = [_entry(f"{kind}:{name}", perm) for name, perm in perms.items()]
    return {entry.resource: entry for entry in made}


def _entry(resource: str, perm: str) -> PolicyEntry:
    words = [word.strip().upper() for word in perm.split("|")]
    if words == [_DENY]:
        return make_entry(resource, ["All"], None, "Deny")
    if not set(words) <= {"PUB", "SUB"}:
        raise PolicyError(f"{perm!r} of {resource} is none of DENY, PUB, SUB, PUB|SUB")
    return make_entry(resource, words, None, "Allow")


class _Line(msgspec.Struct):
    number: int
    indent: int
    text: str


class _Reader:
    """Block-style YAML: maps, lists, texts."""

    def __init__(self, text: str) -> None:
        self._lines: list[_Line] = []
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split(" #")[0].rstrip() if not raw.lstrip().startswith("#") else ""
            stripped = line.lstrip(" ")
            if stripped and stripped != "---":
                self._lines.append(_Line(number, len(line) - len(stripped), stripped))
        self._at = 0

    def read(self) -> object:
        found = self._block(0) if self._lines else {}
        if self._at < len(self._lines):
            raise self._error(self._lines[self._at])
        return found

    def _block(self, indent: int) -> object:
        """What begins at this line and is indented so far at least."""
        line = self._lines[self._at]
        return self._list(line.indent) if _is_item(line) else self._map(line.indent)

    def _list(self, indent: int) -> list[object]:
        items: list[object] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.indent != indent or not _is_item(line):
                break
            rest = line.text[1:].lstrip(" ")
            if ": " in rest or rest.endswith(":"):
                # The item is a map, whose first key stands beside the dash.
                line.indent += len(line.text) - len(rest)
                line.text = rest
                items.append(self._map(line.indent))
            else:
                items.append(self._text(rest, line))
                self._at += 1
        return items

    def _map(self, indent: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.indent != indent or _is_item(line):
                break
            key, colon, value = line.text.partition(":")
            if not colon or (value and not value.startswith(" ")):
                raise self._error(line)
            self._at += 1
            following = self._lines[self._at] if self._at < len(self._lines) else None
            if value.strip():
                found[key.strip()] = self._text(value.strip(), line)
            elif following is not None and (
                following.indent > indent or (following.indent == indent and _is_item(following))
            ):
                found[key.strip()] = self._block(following.indent)
            else:
                found[key.strip()] = None
        return found

    def _text(self, text: str, line: _Line) -> str | None:
        if text[:1] in ("[", "{", "&", "*", "!", "|", ">", "%", "@", "`"):
            if text == "*":
                return text
            raise self._error(line)
        if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
            return text[1:-1]
        return text or None

    def _error(self, line: _Line) -> PlainAclError:
        return PlainAclError(
            f"line {line.number} is not as in RocketMQ's plain_acl.yml: one `key: value` or `- item` a line"
        )


def _is_item(line: _Line) -> bool:
    return line.text == "-" or line.text.startswith("- ")
