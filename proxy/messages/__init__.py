"""Values of the v2 API <-> values of the Remoting protocol: pure, and the checks of what clients send."""
