"""What carries gRPC in the proxy is sound HTTP/2, with TLS and without."""

from __future__ import annotations

import asyncio

import pytest
from h2spec_program import PROGRAM, why_no_h2spec

from proxy.grpc.call import Call
from proxy.grpc.server import ALPN, GrpcServer
from remoting.certificates import self_made_tls
from remoting.tls import TlsMode


@pytest.fixture(scope="module", autouse=True)
def _is_built() -> None:
    if reason := why_no_h2spec():
        pytest.skip(reason)


async def _echo(call: Call) -> None:
    while (message := await call.receive()) is not None:
        await call.send(message)


@pytest.mark.parametrize("options", [[], ["--tls", "--insecure"]], ids=["plaintext", "tls"])
def test_h2spec_finds_no_fault(options: list[str]) -> None:
    async def main() -> tuple[int | None, str]:
        server = GrpcServer(
            {"/a.B/C": _echo}, "127.0.0.1", 0, tls=self_made_tls(TlsMode.PERMISSIVE, alpn=ALPN)
        )
        await server.start()
        try:
            process = await asyncio.create_subprocess_exec(
                PROGRAM, "--port", str(server.port), "--strict", "--timeout", "20", *options,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            output, _ = await process.communicate()
            return process.returncode, output.decode(errors="replace")
        finally:
            await server.stop(0)

    status, output = asyncio.run(main())
    print(output.splitlines()[-1])
    assert status == 0, output[output.find("Failures") :]
    assert ", 0 failed" in output.splitlines()[-1]
