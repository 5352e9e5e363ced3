"""Whose requests a client sends: credentials of a file or of the environment, and what signs with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from auth.credentials import Credentials
from remoting.access_keys import access_keys_of, load_access_keys
from remoting.frame.command import RemotingCommand


def load_credentials(path: str | Path) -> Credentials:
    """Those of a file with `accessKey` and `secretKey`, such as mqadmin's tools.yml. Raises ValueError, which says what
    is wrong and shows no secret.
    """
    return Credentials(*load_access_keys(path))


def credentials_of(environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """Those of the environment; None: requests are not signed. Raises ValueError for a half of them."""
    found = access_keys_of(environment)
    return None if found is None else Credentials(*found)


class Signer:
    """Signs each request of a client, when it leaves: RocketMQ's AclClientRPCHook."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, command: RemotingCommand) -> None:
        command.ext_fields = self._credentials.signed(command.ext_fields, command.body, command.version)


def signer_of(credentials: Credentials | None) -> Signer | None:
    """Of these, else of those of the environment. Raises ValueError."""
    found = credentials or credentials_of()
    return None if found is None else Signer(found)
