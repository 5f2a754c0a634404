from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from jan_serve.cli.server import head_start
from jan_serve.cli.server.head_start import DaemonThreads


def test_results_errors_and_threads_that_are_used_again() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        first = await asyncio.to_thread(threading.current_thread)
        assert first.daemon
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        assert await asyncio.gather(*(asyncio.to_thread(pow, n, 2) for n in range(100))) == [
            n * n for n in range(100)
        ]

    asyncio.run(main())


def test_threads_are_bounded_and_work_waits_for_one() -> None:
    threads = DaemonThreads()
    gate = threading.Event()
    holding = [threads.submit(gate.wait, 60) for _ in range(head_start.MAX_THREADS)]
    waiting = threads.submit(threading.active_count)
    assert not waiting.done()
    gate.set()
    assert all(future.result(60) for future in holding)
    assert waiting.result(60) <= head_start.MAX_THREADS + threading.active_count()
    threads.shutdown()


def test_what_waits_at_the_end_is_cancelled() -> None:
    threads = DaemonThreads()
    gate = threading.Event()
    holding = [threads.submit(gate.wait, 60) for _ in range(head_start.MAX_THREADS)]
    waiting = threads.submit(int)
    threads.shutdown(wait=False)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError):
        threads.submit(int)
    gate.set()
    assert all(future.result(60) for future in holding)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
@pytest.mark.parametrize("is_there_one", [False, True])
def test_work_for_which_the_system_has_no_thread_leaves_no_place_taken(
    monkeypatch: pytest.MonkeyPatch, is_there_one: bool, error: Exception
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise error

    threads, gate, begun = DaemonThreads(), threading.Event(), threading.Event()
    if is_there_one:
        threads.submit(lambda: (begun.set(), gate.wait(60)))
        assert begun.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        later = list[Future[int]]()
        for number in range(2 * head_start.MAX_THREADS):
            if is_there_one:
                later.append(threads.submit(pow, number, 2))
            else:
                with pytest.raises(type(error)):
                    threads.submit(pow, number, 2)
    gate.set()
    assert [future.result(60) for future in later] == [number**2 for number in range(len(later))]
    assert threads.submit(pow, 3, 2).result(60) == 9
    threads.shutdown()
