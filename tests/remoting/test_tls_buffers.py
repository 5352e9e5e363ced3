"""Blocks of the size of a TLS connection's buffer, asked of the C library in a process of their own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys
from pathlib import Path
from remoting.tls_buffers import BUFFER_SIZE, keep_buffers_apart

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def lies_in_the_heap():
    block = libc.malloc(BUFFER_SIZE)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
    libc.free(block)
    return begin <= block < end

if sys.argv[1] == "apart":
    assert keep_buffers_apart()
print([lies_in_the_heap() for _ in range(3)])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library is not glibc")
@pytest.mark.parametrize(
    ("how", "told"), [("as it is", "[False, True, True]"), ("apart", "[False, False, False]")]
)
def test_a_buffer_is_given_back_with_its_connection(how: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told
