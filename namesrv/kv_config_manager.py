"""The NameServer's own key-value store: namespaces of strings, order configurations above all.

The one thing that a NameServer keeps on disk. Loading and writing the text is the shell's business.
"""

from __future__ import annotations

import msgspec
import orjson

from remoting.errors import RemotingBodyError
from remoting.fastjson import loads_fastjson

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KVConfigManager(msgspec.Struct):
    """`is_dirty` is set by each change and cleared by whoever wrote encode() to disk."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    is_dirty: bool = False

    def put(self, namespace: str, key: str, value: str) -> None:
        self.config_table.setdefault(namespace, {})[key] = value
        self.is_dirty = True

    def get(self, namespace: str, key: str) -> str | None:
        return self.config_table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        if self.config_table.get(namespace, {}).pop(key, None) is not None:
            self.is_dirty = True

    def encode(self) -> bytes:
        """The text of kvConfig.json."""
        return orjson.dumps({"configTable": self.config_table}, option=orjson.OPT_INDENT_2)

    def load(self, text: bytes) -> None:
        """Takes a kvConfig.json. Raises RemotingBodyError when it is none."""
        table = loads_fastjson(text)
        if not isinstance(table, dict) or not isinstance(table.get("configTable", {}), dict):
            raise RemotingBodyError("kvConfig.json holds no configTable")
        self.config_table = {
            str(namespace): {str(key): str(value) for key, value in pairs.items()}
            for namespace, pairs in table.get("configTable", {}).items()
        }
