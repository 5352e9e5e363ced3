"""A broker whose names lead nowhere at first, as on Kubernetes: a real process with a file of hosts of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from own_hosts import NO_HOSTS, WITH_HOSTS, can_have_hosts_of_its_own

from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from tests.free_ports import free_ports

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.skipif(not can_have_hosts_of_its_own(), reason=NO_HOSTS)
def test_names_that_lead_nowhere_yet_are_tried_again_and_told_once(tmp_path: Path) -> None:
    async def main() -> None:
        namesrv = Namesrv(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await namesrv.start()
        hosts, conf = tmp_path / "hosts", tmp_path / "broker.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        raft_port, listen_port = free_ports(2)
        conf.write_text(
            "enableDLegerCommitLog=true\ndLegerGroup=berlin@broker\ndLegerSelfId=n0\n"
            f"dLegerPeers=n0-broker-0.mqbroker-svc.late:{raft_port}\npyDLedgerClusterSecret=between us\n"
            f"listenPort={listen_port}\nnamesrvAddr=mqnamesrv-0.mqnamesrv-svc.late:{namesrv.port}\n"
            f"mapedFileSizeCommitLog=1048576\nstorePathRootDir={tmp_path}/store\n"
        )
        broker = await asyncio.create_subprocess_exec(
            *WITH_HOSTS, str(hosts), sys.executable, "-m", "mq.server_entry", "broker", "-c", str(conf),
            cwd=ROOT, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert broker.stderr is not None
        told = []
        try:
            async with asyncio.timeout(60):
                while not told or "name server is back" not in told[-1]:
                    line = await broker.stderr.readline()
                    assert line, told
                    told.append(line.decode())
                    if "name server refuses or is away" in told[-1]:
                        with hosts.open("a") as file:
                            file.write(
                                "127.0.0.1 mqnamesrv-0.mqnamesrv-svc.late broker-0.mqbroker-svc.late\n"
                            )
        finally:
            broker.terminate()
            await broker.communicate()
            await namesrv.close()
        assert sum("name server refuses or is away" in line for line in told) == 1
        assert any("brokerIP1=broker-0.mqbroker-svc.late leads to no address yet" in line for line in told)

    asyncio.run(main())
