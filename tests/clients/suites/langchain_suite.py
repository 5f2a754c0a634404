"""LangChain's standard tests of chat models and embeddings, for each of its classes that speaks a protocol of ours.

Runs in the environment of the clients, against the server of JAN_SERVE_URL.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

URL = os.environ["JAN_SERVE_URL"]
MODEL = "jan-tiny"


class _Chat(ChatModelIntegrationTests):
    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestChatOpenAI(_Chat):
    @property
    def chat_model_class(self) -> type[ChatOpenAI]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "base_url": f"{URL}/v1",
            "api_key": "none",
            "temperature": 0,
            "stream_usage": True,
        }


class TestChatOpenAIWithResponses(TestChatOpenAI):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return super().chat_model_params | {"use_responses_api": True}


class TestChatAnthropic(_Chat):
    @property
    def chat_model_class(self) -> type[ChatAnthropic]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": URL, "api_key": "none", "temperature": 0, "max_tokens": 512}

    @property
    def supports_json_mode(self) -> bool:
        return False


class TestChatOllama(_Chat):
    @property
    def chat_model_class(self) -> type[ChatOllama]:
        return ChatOllama

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": URL, "temperature": 0}


class TestOpenAIEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[OpenAIEmbeddings]:
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        # Without this, the client sends tokens of OpenAI's own vocabulary.
        own_text = {"check_embedding_ctx_length": False}
        return {"model": MODEL, "base_url": f"{URL}/v1", "api_key": "none", **own_text}


class TestOllamaEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[OllamaEmbeddings]:
        return OllamaEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": URL}


if __name__ == "__main__":
    pytest.main([__file__])
