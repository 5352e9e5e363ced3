"""The commands that start a NameServer and a broker, with RocketMQ's flags too: what they take, and what they say."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mq import server_entry
from mq.cluster_layout import ClusterLayout

MQ = [sys.executable, "-c", "from mq.__main__ import main; main()"]


def mq(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MQ, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
def test_a_server_that_cannot_start_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no JSON")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, conf, reason in (
            (
                ("namesrv", "--host", "127.0.0.1", "--port", port),
                "",
                "configure another port, or end the process",
            ),
            (("namesrv", "--host", "203.0.113.1"), "", "bindAddress must be an address of this machine"),
            (("namesrv", "--host", "127.0.0.1"), f"kvConfigPath={file}", f"{file}: "),
            (
                ("broker",),
                f"storePathRootDir={file}\nnamesrvAddr=127.0.0.1:1\nbrokerIP1=127.0.0.1",
                f"{file}: File exists: have storePathRootDir name a place",
            ),
        ):
            (tmp_path / "conf").write_text(conf)
            command = [sys.executable, "-m", "mq.server_entry", *arguments, "-c", str(tmp_path / "conf")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == 1
            assert reason in done.stderr
            assert "Errno" not in done.stderr
            assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "No space left on device: make room there and start again"),
        (errno.EDQUOT, "make room there and start again"),
        (errno.EIO, "Input/output error: have another disk there"),
        (errno.EACCES, "Permission denied: have storePathRootDir name a place that this user can write to"),
    ],
)
def test_a_server_that_its_disk_lets_down_says_what_to_do(number: int, advice: str) -> None:
    told = server_entry._cause_and_cure(
        OSError(number, os.strerror(number), "/store/file"), "storePathRootDir"
    )
    assert told.startswith("/store/file: ")
    assert advice in told


@pytest.mark.slow
def test_servers_take_rocketmqs_flags(tmp_path: Path) -> None:
    def server(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mq.server_entry", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    conf = tmp_path / "broker.conf"
    layout = ClusterLayout(dir=str(tmp_path))
    conf.write_text(layout.broker_conf(layout.nodes[0]))
    shown = server("broker", "-c", str(conf), "-n", "10.0.0.1:9876;10.0.0.2:9876", "-p")
    assert shown.returncode == 0, shown.stderr
    assert "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\n" in shown.stdout
    assert "dLegerSelfId=n0\n" in shown.stdout
    assert "flushDiskType=SYNC_FLUSH\n" in shown.stdout
    with conf.open("a") as file:
        file.write("listenPrt=1\n")
    warned = server("broker", "-c", str(conf), "-p")
    assert warned.returncode == 0
    assert "unknown key listenPrt; did you mean listenPort?" in warned.stderr

    namesrv = tmp_path / "namesrv.conf"
    namesrv.write_text("listenPort=19876\n")
    assert "listenPort=19876\n" in server("namesrv", "-c", str(namesrv), "-p").stdout

    conf.write_text("listenPort=70000\n")
    for name, file, reason in (
        ("broker", str(conf), f"{conf}:1"),
        ("broker", "/no/such.conf", "No such file or directory: name a conf file that can be read"),
        ("namesrv", str(tmp_path), "Is a directory: name a conf file that can be read"),
    ):
        wrong = server(name, "-c", file)
        assert wrong.returncode == 2
        assert reason in wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1


def started(
    server: Callable[[list[str]], None], capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[object, str, str]:
    """Exit status, stdout and stderr of a start that prints or is refused."""
    with pytest.raises(SystemExit) as ended:
        server(list(arguments))
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_the_start_commands_of_real_scripts_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RocketMQ passes over words that are no options, and takes long options behind one dash."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerIP1=127.0.0.1\n")
    code, out, err = started(
        server_entry.broker,
        capsys,
        *(
            "-namesrvAddr",
            "10.0.0.1:9876;10.0.0.2:9876",
            "autoCreateTopicEnable=false",
            "-c",
            str(conf),
            "-p",
        ),
    )
    assert code == 0
    assert "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\n" in out
    assert "autoCreateTopicEnable=true\n" in out
    assert (
        "mqbroker: autoCreateTopicEnable=false has no effect here, as with RocketMQ: put it into the conf file (-c)\n"
    ) in err
    code, out, _ = started(server_entry.broker, capsys, "-m", "-c", str(conf), "-n", "10.0.0.1:9876")
    assert code == 0
    assert "namesrvAddr=10.0.0.1:9876\n" in out
    assert "fileReservedTime=72\n" in out
    assert "longPollingEnable" not in out
    code, out, _ = started(server_entry.broker, capsys, "-pc", str(conf))
    assert (code, "longPollingEnable=true\n" in out) == (0, True)
    code, out, err = started(server_entry.namesrv, capsys, "-p", "9877", "-n", "10.0.0.1:9876;10.0.0.2:9876")
    assert code == 0
    assert "listenPort=9876\n" in out
    assert (
        "9877 has no effect here, as with RocketMQ: --port and --host set where a NameServer listens" in err
    )
    assert "-n has no effect on a NameServer" in err
    code, out, _ = started(server_entry.broker, capsys, "-h")
    assert (code, "--printImportantConfig" in out) == (0, True)


def test_the_name_servers_of_a_broker_come_from_n_then_the_conf_then_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.3:9876")
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerIP1=127.0.0.1\n")
    _, out, err = started(server_entry.broker, capsys, "-c", str(conf), "-p")
    assert "namesrvAddr=10.0.0.3:9876\n" in out
    assert err == ""
    conf.write_text("brokerIP1=127.0.0.1\nnamesrvAddr=10.0.0.2:9876\n")
    _, out, _ = started(server_entry.broker, capsys, "-c", str(conf), "-p")
    assert "namesrvAddr=10.0.0.2:9876\n" in out
    _, out, _ = started(server_entry.broker, capsys, "-c", str(conf), "-n", "10.0.0.1:9876", "-p")
    assert "namesrvAddr=10.0.0.1:9876\n" in out
    monkeypatch.delenv("NAMESRV_ADDR")
    conf.write_text("brokerIP1=127.0.0.1\n")
    _, _, err = started(server_entry.broker, capsys, "-c", str(conf), "-p")
    assert "no NameServer is named, so no client finds this broker" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--enable-proxy"], "mqbroker: --enable-proxy needs a NameServer: give -n HOST:PORT"),
        (["--enable-proxy", "-n", "a:1", "-c"], "mqbroker: argument -c/--configFile: expected one argument"),
        (["--enable-prxy"], "mqbroker: unknown option --enable-prxy; --help lists the options"),
        (["-c"], "mqbroker: argument -c/--configFile: expected one argument; --help lists the options"),
    ],
)
def test_a_start_command_that_cannot_be_done_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    code, _, err = started(server_entry.broker, capsys, *arguments)
    assert code == 2
    assert reason in err
    assert len(err.splitlines()) == 1
