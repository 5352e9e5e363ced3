"""What service.proto defines: requests and responses. The stub beside this file has the types."""

from proxy.protocol.pool import names_of

globals().update(names_of("service"))
