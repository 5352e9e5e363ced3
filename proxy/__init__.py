"""The gRPC door for RocketMQ 5.x clients: a process of its own, and a remoting client of brokers."""
