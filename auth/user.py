"""Users: who may ask at all."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

MASK: Final = "******"
NAME_LENGTH_MAX: Final = 255  # of users, and of passwords


class UserType(StrEnum):
    SUPER = "Super"  # may do everything
    NORMAL = "Normal"  # may do what policies allow


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class User(msgspec.Struct, frozen=True):
    """`password`: the secret key, with which a client signs."""

    username: str
    password: str
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.user_type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.user_status is UserStatus.ENABLE

    def __repr__(self) -> str:
        return f"User({self.username!r}, {MASK}, {self.user_type.value}, {self.user_status.value})"
