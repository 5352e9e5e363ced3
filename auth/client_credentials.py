"""Where a client's access key and secret come from: never from an argument of a command, which others can read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from auth.credentials import Credentials, UnsignedRequest
from remoting.configuration import ConfigError, parse_properties

ACCESS_KEY_VARIABLE: Final = "PYDLEDGER_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "PYDLEDGER_SECRET_KEY"
FILE_VARIABLE: Final = "PYDLEDGER_CREDENTIALS_FILE"


def load_credentials(path: str | Path) -> Credentials:
    """Those of a file with `accessKey` and `secretKey`, such as mqadmin's tools.yml. Raises ValueError, which says what
    is wrong and shows no secret.
    """
    try:
        pairs = parse_properties(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ValueError(f"credentials file {path}: {error.strerror}") from None
    except (ConfigError, UnicodeDecodeError):
        raise ValueError(f"credentials file {path} is no list of accessKey and secretKey") from None
    values = {item.key: item.value.strip().strip("\"'") for item in pairs}
    missing = [key for key in ("accessKey", "secretKey") if not values.get(key)]
    if missing:
        raise ValueError(f"credentials file {path} has no {missing[0]}")
    return Credentials(values["accessKey"], values["secretKey"])


def credentials_of(environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """Those of the environment; None: requests are not signed. Raises ValueError for a half of them."""
    if path := environment.get(FILE_VARIABLE):
        return load_credentials(path)
    keys = environment.get(ACCESS_KEY_VARIABLE), environment.get(SECRET_KEY_VARIABLE)
    if all(keys):
        return Credentials(keys[0] or "", keys[1] or "")
    if any(keys):
        raise ValueError(f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} must both be in the environment")
    return None


def signer_of(credentials: Credentials | None) -> Callable[[UnsignedRequest], None] | None:
    """What signs each request of a client, with these or those of the environment. Raises ValueError."""
    found = credentials or credentials_of()
    return None if found is None else found.sign
