"""/v1/responses: OpenAI's Responses API, over the same generation service as chats."""
