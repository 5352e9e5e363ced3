"""Serves gRPC over HTTP/2 and knows no RocketMQ: a handler for each path, and what carries its calls."""
