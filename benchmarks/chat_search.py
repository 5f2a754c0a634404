"""Searches over 10,000 chats: `python -m benchmarks.chat_search` prints the CPU time and the wall time of each."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from jan_serve.journal.chats import ChatQuery, ChatTable, ChatToStore
from jan_serve.journal.journal import Journal
from jan_serve.journal.schema import CHATS

CHAT_COUNT: Final = 10_000
WORDS_PER_CHAT: Final = 600
VOCABULARY: Final = 30_000
_PIECE: Final = 100
_FIRST_MS: Final = 1_700_000_000_000


def words(rng: random.Random) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(VOCABULARY)]


async def fill(table: ChatTable, vocabulary: list[str], rng: random.Random) -> None:
    """Frequencies fall with the rank of a word, as in languages."""
    weights = [1 / (rank + 1) for rank in range(VOCABULARY)]
    for first in range(0, CHAT_COUNT, _PIECE):
        texts = [" ".join(rng.choices(vocabulary, weights, k=WORDS_PER_CHAT)) for _ in range(_PIECE)]
        chats = [
            ChatToStore(
                id=f"chat-{number}",
                title=text[:40],
                updated=_FIRST_MS + number,
                messages=6,
                content=text.encode(),
                text=text,
            )
            for number, text in enumerate(texts, first)
        ]
        await table.add("", chats)


async def main() -> None:
    rng = random.Random(1)
    vocabulary = words(rng)
    queries = {
        "the list": "",
        "a word of all chats": vocabulary[0],
        "two frequent words": f"{vocabulary[1]} {vocabulary[5]}",
        "a rare word": vocabulary[20_000],
        "a frequent and a rare word": f"{vocabulary[0]} {vocabulary[25_000]}",
        "two words that no chat has together": f"{vocabulary[10_000]} {vocabulary[10_001]}",
        "one letter": "a",
        "three letters": "a b c",
        "no word": "xqzxqz",
    }
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "chats.sqlite3", 4 << 30, CHATS)
        table = ChatTable(journal)
        await fill(table, vocabulary, rng)
        print(f"{CHAT_COUNT:,} chats of {WORDS_PER_CHAT} words: {journal.path.stat().st_size / 1e6:.0f} MB")
        for name, query in queries.items():
            cpu, wall = time.process_time(), time.perf_counter()
            found, _ = await table.page("", ChatQuery(limit=50, words=query))
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            print(f"{name}: {len(found)} found, {cpu * 1e3:.1f} ms of CPU, {wall * 1e3:.1f} ms")
        await journal.close()


if __name__ == "__main__":
    asyncio.run(main())
