"""/v1/messages/batches: Anthropic's Message Batches."""
