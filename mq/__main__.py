"""`mq`: the one front door."""

from __future__ import annotations

import sys


def main() -> None:
    """Loads what the command needs, and no more: the libraries of others take longer to load than it works."""
    given = sys.argv[1:]
    if given[:1] == ["admin"]:
        from mq.admin.__main__ import main as admin

        admin(given[1:])
    else:
        from mq.front_door import make_app

        make_app(given[0] if given else None)()


if __name__ == "__main__":
    main()
