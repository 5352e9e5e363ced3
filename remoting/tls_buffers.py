"""Where the buffers of TLS connections lie, so that a flood of connections leaves no holes in a server's memory."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

# uvloop gives each TLS connection one buffer of this size.
BUFFER_SIZE: Final = 256 * 1024
_M_MMAP_THRESHOLD: Final = -3  # malloc.h of glibc


@cache
def keep_buffers_apart() -> bool:
    """Have blocks of that size and above mapped by themselves, and given back when their connection ends.

    glibc begins so, and stops when the first one has been freed: from then on they lie among small blocks. Where
    connections come and go while messages are kept, the holes are filled with what stays, and a broker that is
    attacked grows by 10 MiB a minute (`cluster_tests/fuzzed`). Returns whether the C library has taken it; others than
    glibc have no such switch.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, BUFFER_SIZE) == 1
