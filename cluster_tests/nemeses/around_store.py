"""What lies around the store of a member of ours."""

from pathlib import Path

from nemeses.nemesis import Group, NemesisError

from remoting.configuration import parse_properties


def log_file(group: Group, member: str) -> Path:
    return group.store_dir(member).parent / "broker.log"


def listen_address(group: Group, member: str) -> str:
    """Where it hears clients. Raises NemesisError."""
    conf = group.store_dir(member).parent / "broker.conf"
    lines = {line.key: line.value for line in parse_properties(conf.read_text(), str(conf))}
    try:
        return f"{lines['brokerIP1']}:{lines['listenPort']}"
    except KeyError as error:
        raise NemesisError(f"{conf} does not say {error}") from None
