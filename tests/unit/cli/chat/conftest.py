from __future__ import annotations

from collections.abc import Generator

import pytest
from pydantic import SecretStr

from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.slash_commands import ChatSession
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.config import ServerAddress
from tests.support.servers.served_app import ServedApp


@pytest.fixture
def session(server: ServedApp) -> Generator[ChatSession]:
    with ServerClient(ServerAddress(server.url, "--url", SecretStr("k"), "default")) as client:
        yield ChatSession(client, Conversation("alpha"))
