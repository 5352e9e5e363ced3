"""Proxies that know the frames of the members' links, one for each direction of dialling; all on a loop of their own.

    with FrameProxies({("n0", "n1"): "127.0.0.1:9901", …}) as proxies:
        meddling = proxies.meddle("n0", "n1", Fate.DROP, share=0.1, seed=7)
        …
        meddling.lift()

Each stands between the member that dials and whatever led it to its peer, toxiproxy for example. As there, what n0 says
to n1 goes up the connections that n0 dialled and down those that n1 dialled, and a fault is on both.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from proxies.frame_stream import Fate, FrameFault, FrameStream

HOST = "127.0.0.1"
_READ_SIZE = 256 << 10
_ANSWER_S_MAX = 20.0

Pair = tuple[str, str]  # who dials, or says, and to whom


class Meddling:
    """One fault on one directed link."""

    def __init__(self, fault: FrameFault, lift: Callable[[], None]) -> None:
        self._fault = fault
        self.lift = lift

    @property
    def counts(self) -> Counter[int]:
        """Messages that had this fate so far, by type."""
        return self._fault.counts.copy()


class FrameProxies:
    """Several threads may call at once."""

    def __init__(self, upstreams: Mapping[Pair, str]) -> None:
        """(dialler, peer) to host:port. Raises OSError. Listens on ports that the kernel picks."""
        self.addresses: dict[Pair, str] = {}
        self._faults: dict[Pair, tuple[FrameFault, ...]] = {}
        self._lock = threading.Lock()
        self._servers: list[asyncio.Server] = []
        self._carriers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="frame-proxies", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(upstreams), self._loop).result(_ANSWER_S_MAX)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "FrameProxies":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """With all connections. Once is enough."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_ANSWER_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def meddle(self, sender: str, receiver: str, fate: Fate, *, share: float, seed: int) -> Meddling:
        """With messages that begin from now on, until it is lifted. Which of them is a matter of the seed."""
        fault, pair = FrameFault(fate, share, Random(seed)), (sender, receiver)

        def lift() -> None:
            with self._lock:
                self._faults[pair] = tuple(one for one in self._faults[pair] if one is not fault)

        with self._lock:
            self._faults[pair] = (*self._faults.get(pair, ()), fault)
        return Meddling(fault, lift)

    async def _listen(self, upstreams: Mapping[Pair, str]) -> None:
        for pair, upstream in upstreams.items():

            def accepted(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                pair: Pair = pair,
                upstream: str = upstream,
            ) -> None:
                carrier = asyncio.get_running_loop().create_task(self._carry(pair, upstream, reader, writer))
                self._carriers.add(carrier)
                carrier.add_done_callback(self._carriers.discard)

            server = await asyncio.start_server(accepted, HOST, 0)
            self._servers.append(server)
            self.addresses[pair] = f"{HOST}:{server.sockets[0].getsockname()[1]}"

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        carriers = list(self._carriers)
        for carrier in carriers:
            carrier.cancel()
        await asyncio.gather(*carriers, return_exceptions=True)

    async def _carry(
        self, pair: Pair, upstream: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, until either side ends it."""
        host, _, port = upstream.rpartition(":")
        writers = [writer]
        try:
            with contextlib.suppress(OSError):
                peer_reader, peer_writer = await asyncio.open_connection(host, int(port))
                writers.append(peer_writer)
                ways = [
                    asyncio.create_task(self._pump(pair, reader, peer_writer)),
                    asyncio.create_task(self._pump((pair[1], pair[0]), peer_reader, writer)),
                ]
                try:
                    ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ended:
                        way.result()
                except ConnectionError:
                    # A reset stays one: closing would say that all had been said.
                    for one in writers:
                        one.transport.abort()
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for one in writers:
                one.close()

    async def _pump(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(lambda: self._faults.get(pair, ()))
        while data := await reader.read(_READ_SIZE):
            if passes := stream.receive(data):
                writer.write(passes)
                await writer.drain()
