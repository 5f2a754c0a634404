"""LM Studio's list of models, which its clients read before they use OpenAI's routes."""
