"""What a follower adds to a change that it passes on to its leader: from where the change came, and a proof of that.

The proof is keyed with the cluster secret, so no client can claim another address. A group without a secret is on one
machine, and there the address of the connection is the proof.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from auth.policy import address_of
from auth.signature import signed_content
from dledger.cluster_secrets import ClusterSecrets
from remoting.frame.command import RemotingCommand

# Of our own: a member that has this one from a member does not pass it on again. The value is where it came from.
PASSED_ON: Final = "passedOn"
_PROOF: Final = "passedOnProof"
PASSED_ON_FIELDS: Final = frozenset({PASSED_ON, _PROOF})
_LABEL: Final = b"pydledger passed on\0"


class PassedOn:
    def __init__(self, secrets: ClusterSecrets) -> None:
        self._secrets = secrets

    def fields_of(self, command: RemotingCommand, source_ip: str) -> dict[str, str]:
        """All that the leader gets."""
        fields = {**command.ext_fields, PASSED_ON: source_ip}
        if not self._secrets.are_empty:
            fields[_PROOF] = _proof(self._secrets.read_again()[0], command, source_ip)
        return fields

    def source_of(self, command: RemotingCommand) -> str | None:
        """None: it was not passed on, or that is not proved."""
        source_ip = command.ext_fields.get(PASSED_ON)
        if source_ip is None or self._secrets.are_empty or address_of(source_ip) is None:
            return None
        proof = command.ext_fields.get(_PROOF, "").encode(errors="replace")
        proofs = [_proof(secret, command, source_ip).encode() for secret in self._secrets.read_again()]
        return source_ip if any(hmac.compare_digest(proof, known) for known in proofs) else None


def _proof(secret: bytes, command: RemotingCommand, source_ip: str) -> str:
    content = signed_content(command.ext_fields, command.body, command.version, PASSED_ON_FIELDS)
    head = b"%b%d\0%b\0" % (_LABEL, command.code, source_ip.encode())
    return hmac.digest(secret, head + content, hashlib.sha256).hex()
