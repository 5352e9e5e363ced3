"""What users write for addresses, and what they are told of what cannot be one."""

import re

import pytest

from remoting.address import Address, AddressError, is_loopback, parse_address, parse_addresses

DIALLABLE = {
    "127.0.0.1:9876": ("127.0.0.1", 9876),
    " localhost:1 ": ("localhost", 1),
    "broker-0.mqbroker-svc:40911": ("broker-0.mqbroker-svc", 40911),
    "n0-broker-a.mq.default.svc.cluster.local:65535": ("n0-broker-a.mq.default.svc.cluster.local", 65535),
    "berlin@broker_1:10911": ("berlin@broker_1", 10911),
    "rooted.name.:1": ("rooted.name.", 1),
    "[::1]:9876": ("::1", 9876),
    "[fe80::1%eth0]:1": ("fe80::1%eth0", 1),
    # Java registers brokerIP1=::1 so.
    "::1:10911": ("::1", 10911),
    "2001:db8:0:0:0:0:0:1:10911": ("2001:db8:0:0:0:0:0:1", 10911),
}
FAULTY = {
    "": "has no port",
    "127.0.0.1": "has no port",
    "nameserver": "has no port",
    "[::1]": "has no port",
    "::1": "has no port",
    "2001:db8::1": "has no port",
    "127.0.0.1:": "a number from 1 to 65535",
    "127.0.0.1:0": "a number from 1 to 65535",
    "127.0.0.1:65536": "a number from 1 to 65535",
    "127.0.0.1:x": "a number from 1 to 65535",
    "127.0.0.1:٣": "a number from 1 to 65535",
    ":9876": "the host is missing",
    "http://10.0.0.1:9876": "begins with http://",
    "rocketmq+tcp://a:1": "begins with rocketmq+tcp://",
    "127.0.0.1:19876,127.0.0.1:19877": "holds a comma",
    "a:1 b:2": "holds a blank",
    "a:1\tb:2": "holds a tab",
    "a/b:1": "no host's name",
    "192.168.1.300:1": "numbers go from 0 to 255",
    "a:b:1": "no host's name",
    "a..b:1": "1 to 63 characters",
    f"{'a' * 64}.b:1": "1 to 63 characters",
    f"{'a.' * 127}b:1": "all together 253",
}


@pytest.mark.parametrize("text", DIALLABLE)
def test_an_address_is_read_and_written(text: str) -> None:
    address = parse_address(text)
    assert (address.host, address.port) == DIALLABLE[text]
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", FAULTY)
def test_the_message_says_what_is_wrong(text: str) -> None:
    with pytest.raises(AddressError, match=re.escape(FAULTY[text])):
        parse_address(text)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert str(Address("::1", 9876)) == "[::1]:9876"
    assert str(Address("::1", 9876)) == str(parse_address("::1:9876"))


def test_a_list_is_joined_by_semicolons() -> None:
    assert [str(address) for address in parse_addresses("a:1; [::1]:2;;")] == ["a:1", "[::1]:2"]
    assert parse_addresses(" ; ") == ()


def test_only_an_ip_address_is_loopback() -> None:
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("localhost"), "it is what it leads to"
