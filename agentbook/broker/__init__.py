"""The server and the connection to it: the only part that knows NATS."""
