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

from remoting.errors import RemotingError

if TYPE_CHECKING:
    from rich.progress import Progress

EXIT_FAILED = 1
WIDTH_OF_A_PIPE = 10_000  # columns: nothing is folded there


def print_json(value: Any) -> None:
    """Pretty on a terminal, one line in a pipe."""
    option = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
    sys.stdout.write(orjson.dumps(value, option=option).decode() + "\n")
    sys.stdout.flush()


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, dispensable: Sequence[str] = ()
) -> None:
    """Numbers are set to the right. Nothing is cut, nor folded when the output is no terminal.

    On a terminal that is too narrow, columns that are `dispensable` are left out, from the first one on, and named.
    """
    # Here, as it takes longer to load than a command that needs none of it may take.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
    names = [name.replace("_", " ") for name in columns]  # which may be folded between words
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, (*name.split(), *(row[at] for row in cells)))) for at, name in enumerate(names)]
    shown, left_out = list(range(len(columns))), []
    for name in dispensable:
        if 1 + sum(widths[at] + 3 for at in shown) <= console.width:  # lines and blanks between
            break
        shown.remove(columns.index(name))
        left_out.append(names[columns.index(name)])
    table = Table(title=title or None, title_justify="left", header_style="bold", title_style="bold")
    for at in shown:
        numeric = bool(rows) and all(isinstance(row[at], int | float) for row in rows)
        table.add_column(
            names[at], justify="right" if numeric else "left", overflow="fold", min_width=widths[at]
        )
    for row in cells:
        # As text: what a topic or key is called must not be read as rich's markup.
        table.add_row(*(Text(row[at]) for at in shown))
    console.print(table)
    if left_out:
        console.print(Text(f"left out, as the terminal is narrow: {', '.join(left_out)}"))


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


def tell(text: object) -> None:
    """One clear message on stderr."""
    print(f"mq: {text}", file=sys.stderr)


def fail(text: object, status: int = EXIT_FAILED) -> NoReturn:
    """Ends the command with one clear message on stderr."""
    tell(text)
    raise SystemExit(status)


@contextlib.contextmanager
def user_errors(*further: type[Exception]) -> Iterator[None]:
    """Turns what a user can cause (a wrong address, a cluster that is down) into its message without a stack."""
    try:
        yield
    except BrokenPipeError:
        # Whoever reads our output has seen enough. What is left in the buffer must not meet the pipe again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_FAILED) from None
    except Exception as error:
        # Not before: the client library takes longer to load than all that starts a cluster.
        from mqclient.errors import MQClientError

        if not isinstance(error, (MQClientError, RemotingError, OSError, ValueError, *further)):
            raise
        fail(error_text(error))


def error_text(error: Exception) -> str:
    """In the words of the one who typed: which file, and never nothing."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)
