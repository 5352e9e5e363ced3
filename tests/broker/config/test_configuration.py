"""The properties format, and what its reader says about settings that are wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.config.access_settings import ACCESS_SETTINGS
from broker.config.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from broker.config.config_file import load_broker_config
from namesrv.namesrv_config import load_namesrv_config
from remoting.configuration import (
    UNSET,
    ConfigError,
    Property,
    Setting,
    addresses,
    altered_warnings,
    boolean,
    format_properties,
    known_keys,
    load_conf_file,
    nearest_key,
    one_of,
    parse_properties,
    read_settings,
    whole_number,
)

SETTINGS = {
    "listenPort": whole_number("listen_port", 1, 65535, is_clamped=False),
    "pyDLedgerHttpPort": whole_number("http_port", 1, 65535),
    "mappedFileSizeConsumeQueue": whole_number("file_size", 20, 1_000_000, "bytes", step=20),
    "traceOn": boolean("trace_on"),
    "namesrvAddr": addresses("namesrv_addr"),
}


def pairs(text: str) -> list[tuple[str, str, int]]:
    return [(item.key, item.value, item.line) for item in parse_properties(text, "b.conf")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1", 1)]),
        ("# comment\n! too\n\n  a = 1  ", [("a", "1", 4)]),
        ("a:1\nb 2\nc", [("a", "1", 1), ("b", "2", 2), ("c", "", 3)]),
        ("a=1,\\\n   2\nb=3", [("a", "1,2", 1), ("b", "3", 3)]),
        ("a=c:\\\\x\\\nb", [("a", "c:\\xb", 1)]),
        ("a=\\u00e4\\t|", [("a", "\u00e4\t|", 1)]),
        ("a\\=b=c=d", [("a=b", "c=d", 1)]),
        ("a=1\r\nb=2\r\n", [("a", "1", 1), ("b", "2", 2)]),
        ("a=last \\", [("a", "last \\", 1)]),
        ("a=1\x0cb=2\u2028c=3", [("a", "1\x0cb=2\u2028c=3", 1)]),
    ],
)
def test_reads_what_java_reads(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_what_is_no_text_of_a_byte_a_letter_is_refused(encoding: str) -> None:
    text = "listenPort=10911\n".encode(encoding).decode(errors="replace")
    with pytest.raises(ConfigError, match=r"some\.conf: no properties.*lines key=value"):
        parse_properties(text, "some.conf")


def test_a_broken_escape_names_file_and_line() -> None:
    with pytest.raises(ConfigError, match=r"b\.conf:2: .*hexadecimal"):
        parse_properties("a=1\nb=\\u12x4", "b.conf")


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.from_regex(r"[a-zA-Z][a-zA-Z0-9.]{0,9}", fullmatch=True),
        st.from_regex(r"[a-zA-Z0-9:;/_.-]{0,12}", fullmatch=True),
        max_size=5,
    )
)
def test_what_is_formatted_reads_back(table: dict[str, str]) -> None:
    text = format_properties(table.items())
    assert {key: value for key, value, _ in pairs(text)} == table


def test_values_come_by_field_name() -> None:
    properties = parse_properties("listenPort=30911\ntraceOn=FALSE\nnamesrvAddr=a:1; b:2", "b.conf")
    values, warnings, _, _ = read_settings(properties, SETTINGS)
    assert values == {"listen_port": 30911, "trace_on": False, "namesrv_addr": ("a:1", "b:2")}
    assert warnings == []


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one() -> None:
    values, warnings, _, _ = read_settings([Property("flushDiskTyp", "SYNC_FLUSH", 7, "b.conf")], SETTINGS)
    assert values == {}
    assert warnings == ["b.conf:7: unknown key flushDiskTyp; did you mean flushDiskType?"]


def test_a_text_of_which_no_key_is_known_is_no_conf_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    text = "# Notes\nremember the milk\nand the bread\n"
    path.write_text(text)
    with pytest.raises(
        ConfigError,
        match=r"notes\.txt: no line is key=value with a known key, the first is remember in line 2: name a conf file",
    ):
        load_conf_file(str(path), SETTINGS)
    path.write_text(f"{text}listenPort=30911\n")
    assert load_conf_file(str(path), SETTINGS)[-1].value == "30911"
    path.write_text("listenprot=30911")
    assert load_conf_file(str(path), SETTINGS), "a slip of the pen is a warning"


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 localhost\n127.0.0.1 broker-a\n",
        "listenPort decides where clients come in\nand traceOn what is told\n",
        "one line\n",
        "listenprot=30911\nremember the milk\n",
        "# listenPort=30911\nremember the milk\n",
    ],
)
def test_a_text_without_a_known_key_and_a_sign_behind_it_is_no_conf_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no line is key=value with a known key"):
        load_conf_file(str(path), SETTINGS)


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", " listenPort : 30911\ntraceOn true\n", "listenPort=\n"]
)
def test_a_conf_file_may_be_empty_and_have_every_sign_of_java(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    assert load_conf_file(str(path), SETTINGS) == parse_properties(text, str(path))


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("listenPort=30911\ntraceOn=true\n", encoding="utf-8-sig")
    assert [item.key for item in load_conf_file(str(path), SETTINGS)] == ["listenPort", "traceOn"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("flushDiskTyp", "flushDiskType"),
        ("brokerIp", "brokerIP1"),  # brokerIP2 is as near, and no broker of ours reads it
        ("brokerIp2", "brokerIP2"),
        ("defaultTopicQueueNum", "defaultTopicQueueNums"),
        ("namesrvAddress", "namesrvAddr"),
        ("nameserverAddr", "namesrvAddr"),
        ("dLedgerGroup", "dLegerGroup"),
        ("enableDledgerCommitLog", "enableDLegerCommitLog"),
        ("commitLogMappedFileSize", "mappedFileSizeCommitLog"),
        ("storePathConsumeQueueExt", "storePathConsumeQueue"),
        ("storePathQueues", None),
        ("generateConfigForScaleOutEnable", None),
        ("port", None),
        ("ä", None),
    ],
)
def test_hints_count_letters_and_the_words_of_a_key(written: str, meant: str | None) -> None:
    settings = {**BROKER_SETTINGS, **DLEDGER_SETTINGS, **STORE_SETTINGS, **ACCESS_SETTINGS}
    assert nearest_key(written, settings) == meant


@pytest.mark.parametrize("load", [load_broker_config, load_namesrv_config])
def test_what_the_command_line_says_makes_no_conf_file_of_another_text(
    load: Callable[[str, dict[str, str]], object], tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("remember the milk\nand the bread\n")
    with pytest.raises(ConfigError, match="no line is key=value with a known key"):
        load(str(notes), {"listenPort": "30911"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("listenPort", "70000", "b.conf:3: listenPort='70000' must be a whole number from 1 to 65535"),
        ("namesrvAddr", "host", "b.conf:3: namesrvAddr='host' must be host:port, several joined by ;"),
        ("pyDLedgerHttpPort", "x", "b.conf:3: pyDLedgerHttpPort='x' must be a whole number from 1 to 65535"),
    ],
)
def test_a_bad_value_is_an_error_with_file_line_and_what_is_allowed(
    key: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings([Property(key, value, 3, "b.conf")], SETTINGS)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("setting", "text", "taken"),
    [
        (boolean("f"), "", False),
        (boolean("f"), "yes", False),
        (whole_number("f", 10, 95), "99", 95),
        (whole_number("f", 10, 95), "-3", 10),
        (whole_number("f", 10, 95), "0.75", UNSET),
        (whole_number("f", 10, 95), "", UNSET),
        (whole_number("f", 10, 95), "1_0", UNSET),
        (whole_number("f", 10, 95), "\u0661\u0662", UNSET),
        (whole_number("f", 1, 65535, is_clamped=False), "ten", UNSET),
        (whole_number("f", 20, 1000, step=20), "41", 60),
        (whole_number("f", 20, 1010, step=20), "1009", 1000),
        (one_of("f", {"A": 1}), "B", UNSET),
    ],
)
def test_values_that_rocketmq_changes_or_ignores_start(setting: Setting, text: str, taken: object) -> None:
    found = read_settings([Property("key", text, 3, "b.conf")], {"key": setting})
    assert found.values == ({} if taken is UNSET else {"f": taken})
    (warning,) = altered_warnings(found.altered, {"key": str(taken)})
    assert warning == f"b.conf:3: key={text!r} is not {setting.allowed}: {taken} is taken"


def test_a_value_that_is_ignored_undoes_an_earlier_one() -> None:
    properties = parse_properties("mapedFileSizeConsumeQueue=40\nmappedFileSizeConsumeQueue=x", "b.conf")
    settings = dict.fromkeys((item.key for item in properties), SETTINGS["mappedFileSizeConsumeQueue"])
    assert read_settings(properties, settings).values == {}


@pytest.mark.parametrize("value", ["", "x", "-1", "0.5", "maybe"])
def test_keys_without_effect_may_say_anything(value: str) -> None:
    properties = [Property(key, value, 1, "b.conf") for key in ("brokerFastFailureEnable", "haListenPort")]
    assert len(read_settings(properties, SETTINGS).warnings) == 1


def test_keys_of_rocketmq_without_effect_are_named_once() -> None:
    properties = parse_properties("sendMessageThreadPoolNums=4\nbrokerFastFailureEnable=true", "b.conf")
    warnings = read_settings(properties, SETTINGS).warnings
    assert warnings == [
        "b.conf: RocketMQ's keys without effect here: sendMessageThreadPoolNums, brokerFastFailureEnable"
    ]


def test_the_last_of_two_values_counts_and_the_other_is_told() -> None:
    values, warnings, _, _ = read_settings(parse_properties("listenPort=1\nlistenPort=2", "b.conf"), SETTINGS)
    assert values == {"listen_port": 2}
    assert warnings == ["b.conf:2: listenPort is set again, line 1 does not count"]


def test_every_key_of_a_broker_conf_of_rocketmq_is_known() -> None:
    example = "brokerClusterName brokerName brokerId deleteWhen fileReservedTime brokerRole flushDiskType dLegerPeers"
    assert set(example.split()) <= set(known_keys())
