"""What holds for every run of pytest."""

import signal


def pytest_configure() -> None:
    """Has a SIGTERM, as `timeout` sends it, end a run as Ctrl-C does: else fixtures would leave their processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
