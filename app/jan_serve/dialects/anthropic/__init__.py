"""Anthropic's Messages API: /v1/messages, and /v1/models for requests with its header `anthropic-version`."""
