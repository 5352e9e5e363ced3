"""Options of commands, read from the signatures of their functions.

A parameter's annotation says of which type its value is and under which names it is given: `Annotated[int, Option("-q",
"--queueId", help="…")]`; without a default it must be given. A bool is a flag; a Bool takes a value, as mqadmin has it.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, get_args


class Bool(StrEnum):
    TRUE = "true"
    FALSE = "false"

    def __bool__(self) -> bool:
        return self is Bool.TRUE


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    help: str
    metavar: str | None
    least: int | None

    def __init__(
        self, *names: str, help: str = "", metavar: str | None = None, least: int | None = None
    ) -> None:
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "help", help)
        object.__setattr__(self, "metavar", metavar)
        object.__setattr__(self, "least", least)


TopicOption = Annotated[str, Option("-t", "--topic", help="topic")]
GroupOption = Annotated[str, Option("-g", "--groupName", "--group", help="consumer group")]
BrokerOption = Annotated[str, Option("-b", "--brokerAddr", metavar="ADDR", help="one broker, host:port")]
ClusterOption = Annotated[
    str, Option("-c", "--clusterName", "--cluster", help="every broker of this cluster")
]
LeadersOption = Annotated[
    str, Option("-c", "--clusterName", "--cluster", help="the leader of each group of this cluster")
]
PermOption = Annotated[int, Option("-p", "--perm", least=0, help="2 write, 4 read, 6 both")]


def add_option(parser: argparse.ArgumentParser, parameter: inspect.Parameter) -> None:
    kind, option = get_args(parameter.annotation)
    assert isinstance(option, Option), "each parameter of a command is an option"
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    if kind is bool:
        parser.add_argument(*option.names, dest=parameter.name, action="store_true", help=option.help)
        return
    shown = "" if required or default in ("", -1) else f" (default {default})"
    parser.add_argument(
        *option.names,
        dest=parameter.name,
        type=_reader(kind, option.least),
        required=required,
        default=default,
        metavar=option.metavar or ("true|false" if kind is Bool else None),
        help=f"{option.help}{shown}".strip().replace("%", "%%"),
    )


def _reader(kind: type, least: int | None) -> Callable[[str], object]:
    def read(text: str) -> object:
        text = text.strip()
        try:
            value: object = kind(text.lower() if kind is Bool else text)
        except ValueError:
            expected = "true or false" if kind is Bool else "a whole number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}") from None
        if least is not None and isinstance(value, int) and value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return Path if kind is Path else read
