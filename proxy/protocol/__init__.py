"""The messages of the v2 gRPC API (apache/rocketmq-apis): `definition` and `service`, each beside its generated stub.

They come from a committed descriptor set, in a pool of their own: no code is generated, and RocketMQ's Python client,
which registers the same names in the default pool, can live in the same process. README.md says how the set was made.
"""
