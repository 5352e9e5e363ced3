"""Files of topic and group configs, as mqadmin has them: a JSON list of objects."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from remoting.bodies.bodies import RemotingBody, from_json_value, loads_fastjson
from remoting.errors import RemotingError

BeanT = TypeVar("BeanT", bound=RemotingBody)


def read_beans(file: Path, kind: type[BeanT]) -> list[BeanT]:
    """Raises OSError, and ValueError that names the file."""
    try:
        values = loads_fastjson(file.read_bytes())
        if not isinstance(values, list) or not values:
            raise ValueError(f"{file}: a JSON list of at least one {kind.__name__} is expected")
        return [from_json_value(kind, value) for value in values]
    except RemotingError as error:
        raise ValueError(f"{file}: {error}: a JSON list of {kind.__name__} is expected") from error
