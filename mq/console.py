"""What the commands show: tables and progress for people, JSON for programs, one line for a mistake.

Results go to stdout. Progress goes to stderr and only when that is a terminal, so pipes and logs stay clean.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from mqclient.errors import MQClientError
from remoting.errors import RemotingError

if TYPE_CHECKING:
    from rich.progress import Progress

EXIT_FAILED = 1


def print_json(value: Any) -> None:
    """Pretty on a terminal, one line in a pipe."""
    option = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
    sys.stdout.write(orjson.dumps(value, option=option).decode() + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers are set to the right; nothing is folded or cut when the output is no terminal."""
    # Here, as it takes longer to load than a command that needs none of it may take.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 240)
    table = Table(title=title or None, title_justify="left", header_style="bold", title_style="bold")
    for position, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[position], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=not sys.stdout.isatty())
    for row in rows:
        # As text: what a topic or key is called must not be read as rich's markup.
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)


def progress() -> Progress:
    """A bar on stderr; silent when that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def fail(text: object, status: int = EXIT_FAILED) -> NoReturn:
    """Ends the command with one clear message on stderr."""
    print(f"mq: {text}", file=sys.stderr)
    raise SystemExit(status)


@contextlib.contextmanager
def user_errors(*further: type[Exception]) -> Iterator[None]:
    """Turns what a user can cause (a wrong address, a cluster that is down) into its message without a stack."""
    kinds: tuple[type[Exception], ...] = (MQClientError, RemotingError, OSError, ValueError, *further)
    try:
        yield
    except BrokenPipeError:
        # Whoever reads our output has seen enough. What is left in the buffer must not meet the pipe again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_FAILED) from None
    except kinds as error:
        if isinstance(error, OSError) and error.filename:
            fail(f"{error.filename}: {error.strerror}")
        fail(str(error) or type(error).__name__)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)
