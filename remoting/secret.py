"""Secrets of a conf file: where they come from, and a value that shows itself nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from remoting.configuration import ConfigError, Property, Setting, words

MASK: Final = "***"
# All keys whose values nobody is to read: those of RocketMQ that are not read here, too.
SECRET_KEYS: Final = frozenset(
    {
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "pyDLedgerClusterSecret",
        "pyDLedgerUsers",
        "tls.client.keyPassword",
        "tls.server.keyPassword",
        "tlsKeyPassword",
    }
)


class SecretError(ConfigError):
    """The file of a secret cannot be read, or has none in it."""


class Secret:
    """A secret text, or the file that has it. Printed, it is only asterisks; `reveal()` says it.

    A file is read at each reveal(), so a secret that is replaced there counts from the next use on.
    """

    __slots__ = ("_key", "_path", "_text")

    def __init__(self, text: str = "", *, path: str | None = None, key: str = "secret file") -> None:
        """`key`: of the setting that names the file."""
        self._text = text
        self._path = path
        self._key = key

    def reveal(self) -> str:
        """The first line of the file, or the text. Raises SecretError."""
        return self.lines()[0]

    def lines(self) -> list[str]:
        """All lines of the file that are not empty; of a text, the text. Raises SecretError."""
        if self._path is None:
            return [self._text]
        try:
            text = Path(self._path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise SecretError(f"{self._key}={self._path} cannot be read: {reason}") from None
        found = [line.strip() for line in text.splitlines() if line.strip()]
        if not found:
            raise SecretError(f"{self._key}={self._path} is empty: it must hold the secret, and nothing else")
        return found

    def __bool__(self) -> bool:
        return self._path is not None or bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._text, self._path) == (other._text, other._path)

    def __hash__(self) -> int:
        return hash((self._text, self._path))

    def __repr__(self) -> str:
        return MASK if self else "''"


NO_SECRET: Final = Secret()


def secret_settings(key: str, field: str) -> dict[str, Setting]:
    """The settings of a secret: `key` has it in the conf, `<key>File` names a file with it."""
    assert key in SECRET_KEYS, "also commands must know it"
    text = words(field)
    read_text = text.read
    shown = Setting(field, lambda given: Secret(str(read_text(given))), text.allowed, is_secret=True)
    return {key: shown, f"{key}File": words(f"{field}_file")}


def take_secret(
    values: dict[str, Any], key: str, field: str, variable: str, environment: Mapping[str, str], source: str
) -> None:
    """Put the secret into `values`: from the conf, its file, or `variable` of the environment. The last one counts
    where the conf has neither. Raises ConfigError for two at once, and for a file without a secret.
    """
    path = values.pop(f"{field}_file", None)
    if path is not None:
        if field in values:
            raise ConfigError(f"{source}: give {key} or {key}File, not both")
        secret = Secret(path=path, key=f"{key}File")
        try:
            secret.lines()
        except SecretError as error:
            raise ConfigError(f"{source}: {error}") from None
        values[field] = secret
    elif field not in values and (text := environment.get(variable)):
        values[field] = Secret(text)


def with_secret_files(
    properties: Iterable[Property], settings: Mapping[str, Setting], environment: Mapping[str, str]
) -> list[Property]:
    """`properties`, and those secret `settings` that are in a file, named by `<key>File`, or in the environment as
    PYDLEDGER_<FIELD>, which counts last. They are read now, and not again. Raises ConfigError.
    """
    found = list(properties)
    given = {item.key: item for item in found}
    for key, setting in settings.items():
        if not setting.is_secret or f"{key}File" in settings:
            continue  # or its file is read whenever the secret is needed: secret_settings()
        variable = f"PYDLEDGER_{setting.field.upper()}"
        named = given.get(f"{key}File")
        if named is not None and key in given:
            raise ConfigError(f"{named.where}: give {key} or {named.key}, not both")
        if named is not None:
            try:
                lines = Secret(path=named.value, key=named.key).lines()
            except SecretError as error:
                raise ConfigError(f"{named.where}: {error}") from None
            found = [item for item in found if item.key != named.key]
            found.append(replace(named, key=key, value="\n".join(lines)))
        elif key not in given and (text := environment.get(variable)):
            found.append(Property(key, text, 0, f"{variable} in the environment"))
    return found
