"""The table of methods has all of the API."""

from proxy.config import ProxyConfig
from proxy.protocol import service
from proxy.server import Proxy
from proxy.services.methods import SERVICE
from proxy.services.table import NOT_SERVED


def test_every_method_of_the_service_is_served_or_says_why_not() -> None:
    methods = service.DESCRIPTOR.services_by_name["MessagingService"].methods
    proxy = Proxy(ProxyConfig(namesrv_addr=("127.0.0.1:1",)))
    assert set(proxy.handlers) == {SERVICE + method.name for method in methods}
    assert set(NOT_SERVED) <= {method.name for method in methods}
