"""/v1/responses: OpenAI's Responses API, on the generation service that chats use."""
