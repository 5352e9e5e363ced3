"""Message bodies: compressed by clients, inflated by consumers. The broker stores them as they come."""

import zlib
from importlib import import_module
from types import ModuleType
from typing import Final

from message.errors import MessageDecodeError, MessageError
from message.sys_flag import CompressionType, compression_type

COMPRESS_LEVEL: Final = 5  # Java's default
# A few KiB can inflate to gigabytes; no client may send a message of more than 4 MiB without compression.
INFLATED_SIZE_MAX: Final = 64 * 1024 * 1024


class CompressionMissingError(MessageError):
    """The package that reads this kind of compression is not installed."""


def compress(body: bytes, level: int = COMPRESS_LEVEL) -> bytes:
    """ZLIB, which every client reads. Its sysFlag bits: sys_flag.compressed_by(CompressionType.ZLIB)."""
    return zlib.compress(body, level)


def decompress(body: bytes, sys_flag: int, *, size_max: int = INFLATED_SIZE_MAX) -> bytes:
    """Raises MessageDecodeError for damaged data and for more than `size_max` bytes,
    CompressionMissingError."""
    try:
        compression = compression_type(sys_flag)
    except ValueError as error:
        raise MessageDecodeError(f"sysFlag {sys_flag:#x}: {error}") from None
    if compression is CompressionType.ZLIB:
        return _inflate_zlib(body, size_max)
    if compression is CompressionType.LZ4:
        return _inflate_lz4(body, size_max)
    return _inflate_zstd(body, size_max)


def _inflate_zlib(body: bytes, size_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, size_max)
    except zlib.error as error:
        raise MessageDecodeError(f"ZLIB body: {error}") from None
    _check_whole(inflater.eof, len(inflated), size_max)
    return inflated


def _inflate_lz4(body: bytes, size_max: int) -> bytes:
    inflater = _optional("lz4.frame").LZ4FrameDecompressor()
    try:
        inflated: bytes = inflater.decompress(body, size_max)
    except RuntimeError as error:
        raise MessageDecodeError(f"LZ4 body: {error}") from None
    _check_whole(inflater.eof, len(inflated), size_max)
    return inflated


def _inflate_zstd(body: bytes, size_max: int) -> bytes:
    zstandard = _optional("zstandard")
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflated = bytearray()
    try:
        # It has no limit of its own, and a KiB of it inflates to 32 MiB at most.
        for at in range(0, len(body), 1024):
            inflated += inflater.decompress(body[at : at + 1024])
            if inflater.eof or len(inflated) > size_max:
                break
    except zstandard.ZstdError as error:
        raise MessageDecodeError(f"ZSTD body: {error}") from None
    _check_whole(inflater.eof and len(inflated) <= size_max, len(inflated), size_max)
    return bytes(inflated)


def _check_whole(whole: bool, size: int, size_max: int) -> None:
    if not whole:
        reason = f"has more than {size_max} bytes" if size >= size_max else "is cut"
        raise MessageDecodeError(f"compressed body {reason}")


def _optional(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise CompressionMissingError(
            f"the body is compressed with {module.partition('.')[0]}: pip install 'pydledger[compression]'"
        ) from None
