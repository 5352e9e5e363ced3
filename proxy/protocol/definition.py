"""What definition.proto defines: resources, messages, settings, codes. The stub beside this file has the types."""

from proxy.protocol.pool import names_of

globals().update(names_of("definition"))
