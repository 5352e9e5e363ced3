"""What all commands of `mq admin` have in common: where the NameServer is, how results are shown, how mistakes end."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mq.admin.options import add_option
from mq.admin.tables import pairs_text, table_text
from mq.console import EXIT_FAILED, print_json, tell, user_errors
from mqclient import Admin


@dataclass(frozen=True, slots=True)
class Done:
    """What was changed, and where."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Report:
    """What there is to show, with a few words below it for people; for programs the `whole`, if it is more than that.

    `silent`: members that should be in it and did not answer, by address, with the reason and what to do. People and
    programs are told of them, and the command has failed.
    """

    shown: Sequence[object] | Mapping[str, object]
    footer: str = ""
    whole: object = None
    silent: Mapping[str, str] = field(default_factory=dict)


# Rows; one thing's names and values; several things' by name; or what is to be shown as it is.
Result = Sequence[object] | Mapping[str, object] | Report


class Command:
    """An async function whose first parameter is an Admin; the others are its options."""

    def __init__(self, function: Callable[..., Awaitable[Result]]) -> None:
        self.function = function

    def add_to(self, commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str) -> None:
        told = (self.function.__doc__ or "").strip().replace("%", "%%")
        parser = commands.add_parser(name, help=told, description=told, allow_abbrev=False)
        for parameter in self._parameters():
            add_option(parser, parameter)
        namesrv, default = parser.add_argument_group("NameServer and output"), os.environ.get("NAMESRV_ADDR")
        namesrv.add_argument(
            "-n",
            "--namesrvAddr",
            "--namesrv",
            metavar="ADDR",
            default=default,
            required=not default,
            help="host:port, several with ; (NAMESRV_ADDR in the environment stands for it)",
        )
        namesrv.add_argument("--json", action="store_true", help="JSON and nothing else")
        parser.set_defaults(command=self, parser=parser)

    def run(self, options: argparse.Namespace) -> None:
        values = {parameter.name: getattr(options, parameter.name) for parameter in self._parameters()}

        async def work() -> Result:
            async with Admin(options.namesrvAddr) as admin:
                result = await self.function(admin, **values)
                if _is_empty(result) and not values.get("broker"):
                    await admin.brokers.addresses()  # where no broker is, that is what there is to say
                return result

        with user_errors():
            show(asyncio.run(work()), as_json=options.json)

    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function, eval_str=True).parameters.values())[1:]


def command(function: Callable[..., Awaitable[Result]]) -> Command:
    return Command(function)


def show(result: Result, *, as_json: bool) -> None:
    """Raises SystemExit(1) once all is shown that there is, where members did not answer."""
    report = result if isinstance(result, Report) else Report(result)
    if as_json:
        print_json(_plain(_with_silent(report)))
    else:
        _show_to_people(report)
    for reason in report.silent.values():
        tell(reason)
    if report.silent:
        raise SystemExit(EXIT_FAILED)


def _with_silent(report: Report) -> object:
    told = report.shown if report.whole is None else report.whole
    if not report.silent:
        return told
    if isinstance(told, Mapping):
        return {**told, **{address: {"error": reason} for address, reason in report.silent.items()}}
    assert isinstance(told, Sequence), "members are rows, or values by their addresses"
    return [*told, *({"address": address, "error": reason} for address, reason in report.silent.items())]


def _is_empty(result: Result) -> bool:
    report = result if isinstance(result, Report) else Report(result)
    return not (report.shown or report.footer or report.silent)


def _show_to_people(report: Report) -> None:
    shown = report.shown
    if _is_empty(report):
        print("nothing to show", file=sys.stderr)
    if isinstance(shown, Mapping):
        text = _pairs(shown)
    elif any(isinstance(row, Done) for row in shown):
        text = "".join(f"{row.where}: {row.what}\n" for row in shown if isinstance(row, Done))
    else:
        text = table_text([_fields(row) for row in shown])
    sys.stdout.write(f"{text}{report.footer}\n" if report.footer else text)
    sys.stdout.flush()


def _pairs(result: Mapping[str, object]) -> str:
    """Sections where a value is a thing of its own."""
    if not result or not all(isinstance(value, Mapping) for value in result.values()):
        return pairs_text(result)
    sections = (f"{name}\n{pairs_text(_fields(part), '  ')}" for name, part in result.items())
    return "\n".join(sections)


def _fields(row: object) -> Mapping[str, object]:
    if isinstance(row, Mapping):
        return row
    assert dataclasses.is_dataclass(row), "a row is a dataclass or a map"
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return {name: _plain(member) for name, member in _fields(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
