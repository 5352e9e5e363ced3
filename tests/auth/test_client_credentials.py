"""Access key and secret of a client: from where they come, and that each request is signed."""

from __future__ import annotations

from pathlib import Path

import pytest

from auth.client_credentials import credentials_of, load_credentials
from auth.signature import ACCESS_KEY, SIGNATURE, is_signature, signed_content
from remoting.frame.command import request


def test_a_file_is_read_as_properties_and_as_mqadmins_tools_yml(tmp_path: Path) -> None:
    for number, text in enumerate(("accessKey=ak\nsecretKey=sk 1\n", 'accessKey: ak\nsecretKey: "sk 1"\n')):
        path = tmp_path / str(number)
        path.write_text(text)
        found = load_credentials(path)
        assert (found.access_key, found.secret_key) == ("ak", "sk 1")
        assert "sk" not in repr(found)


@pytest.mark.parametrize("text", ["", "accessKey=secret-1\n", "secret-1", "\\u12"])
def test_a_file_that_is_none_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    with pytest.raises(ValueError, match="credentials") as caught:
        load_credentials(path)
    assert "secret-1" not in str(caught.value)
    with pytest.raises(ValueError, match="No such file"):
        load_credentials(tmp_path / "none")


def test_the_environment_names_both_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("accessKey=ak\nsecretKey=sk\n")
    both = {"PYDLEDGER_ACCESS_KEY": "ak", "PYDLEDGER_SECRET_KEY": "sk"}
    assert credentials_of(both) == credentials_of({"PYDLEDGER_CREDENTIALS_FILE": str(path)})
    assert credentials_of({}) is None
    with pytest.raises(ValueError, match="must both be in the environment"):
        credentials_of({"PYDLEDGER_ACCESS_KEY": "ak"})


def test_a_request_is_signed_anew_when_it_is_sent_again() -> None:
    found = credentials_of({"PYDLEDGER_ACCESS_KEY": "ak", "PYDLEDGER_SECRET_KEY": "sk"})
    assert found is not None
    command = request(310, {"b": "T"}, b"body", opaque=1)
    for opaque in (1, 2):
        command.opaque = opaque
        found.sign(command)
        fields = command.ext_fields
        assert fields.keys() == {"b", ACCESS_KEY, SIGNATURE}
        content = signed_content(fields, b"body", command.version)
        assert is_signature(fields[SIGNATURE], content, "sk")
