"""`mq admin …`: RocketMQ's mqadmin without a JVM: its sub-commands, under its names and with its options."""
