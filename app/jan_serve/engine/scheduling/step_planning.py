"""Plans the steps of an engine: what its sequences are to the planner, and what it remembers between steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Items

import msgspec

from jan_serve.engine.scheduling.prompt_groups import Group
from jan_serve.engine.scheduling.scheduler import PlanItem
from jan_serve.engine.scheduling.step_costs import StepCosts
from jan_serve.engine.scheduling.step_planner import (
    ALONE_S,
    SOON_S,
    Balance,
    Prompt,
    Streams,
    plan_step,
)
from jan_serve.engine.sequence import Sequence


class Turn(msgspec.Struct, frozen=True):
    """The streams of a step, the prompts with the most tokens of each, and the most tokens of all prompts."""

    streams: list[Sequence]
    reads: list[tuple[Sequence, int]]
    max_prefill: int


class StepPlanning:
    """`plan` before each step, `observe` after it. pauses_total: of streams while prompts were read.

    mixed_total: steps that computed both.
    """

    def __init__(self, chunk: int, stream_share: float | None = None) -> None:
        """chunk: max tokens of a step. stream_share: of the time, beside prompts; None: by heads."""
        self.costs = StepCosts()
        self.pauses_total = self.mixed_total = 0
        self._chunk = chunk
        self._stream_share = stream_share
        self._balance = Balance()
        self._groups: dict[str, Group] = {}
        self._last_read: dict[str, int] = {}
        self._num_reads = 0
        self._num_streams = 0

    def plan(self, turn: Iterable[Sequence], *, now: float, is_contended: bool = False) -> Turn:
        """The next step of these running sequences, which reads prompts of one client: clients take turns.

        is_contended: another model waits for the cores.
        """
        streams: list[Sequence] = []
        prompts: list[Sequence] = []
        for sequence in turn:
            (prompts if sequence.is_prefilling else streams).append(sequence)
        self._num_streams = len(streams)
        share = _stream_share(streams, prompts)
        clients = dict.fromkeys(prompt.request.client for prompt in prompts)
        client = min(clients, key=lambda client: self._last_read.get(client, -1), default="")
        prompts = [prompt for prompt in prompts if prompt.request.client == client]
        step = plan_step(
            [_prompt_of(sequence) for sequence in prompts],
            Streams(
                len(streams),
                max((stream.num_generated for stream in streams), default=0),
                max((stream.state.first_token or 0.0 for stream in streams), default=0.0),
                max((stream.max_new - stream.num_generated for stream in streams), default=0),
                share,
            ),
            self._balance,
            self.costs,
            now=now,
            chunk=self._chunk,
            group=self._groups.get(client),
            stream_share=self._stream_share,
            alone_s=SOON_S if is_contended else ALONE_S,
        )
        self._groups = {name: self._groups[name] for name in clients if name in self._groups}
        self._groups[client] = step.group
        if step.reads:
            self._num_reads += 1
            last = {name: self._last_read[name] for name in clients if name in self._last_read}
            self._last_read = last | {client: self._num_reads}
        reads = [(prompts[index], count) for index, count in step.reads]
        return Turn(streams if step.decodes else [], reads, step.prefill_tokens)

    def observe_prefill(self, plan: Items[PlanItem], media: Items[PlanItem], seconds: float) -> None:
        """Learn from a step with a prefill. plan: its tokens, not committed yet; media: its images, committed."""
        decode = sum(item.size for item in plan if item.is_decode)
        tokens = sum(item.size for item in plan)
        prefill = sum(item.count for item in media) + tokens - decode
        depths = sum(
            item.count * (item.sequence.num_computed + item.count / 2) for item in plan if not item.is_decode
        ) + sum(item.count * (item.sequence.num_computed - item.count / 2) for item in media)
        self.observe(decode, prefill, seconds, depths / prefill)

    def observe(self, num_decode: int, num_prefill: int, seconds: float, depth: float = 0.0) -> None:
        """Learn from the planned step, which computed these numbers of tokens; depth: the prefill's, on average."""
        self.costs.observe(num_decode, num_prefill, seconds, depth)
        decode_s = seconds
        if num_prefill:
            decode_s = min(seconds, self.costs.decode_s(num_decode)) if num_decode else 0.0
            self.mixed_total += num_decode > 0
            is_pause = self._num_streams > 0 and not num_decode
            self.pauses_total += is_pause and (self._balance.ran_s > 0.0 or not self._balance.paused_s)
        self._balance = self._balance.after(self._num_streams, decode_s, seconds - decode_s)


def _stream_share(streams: Items[Sequence], prompts: Items[Sequence]) -> float:
    """The streams' share of the time: by heads within each client, and clients are equal."""
    heads = Counter(sequence.request.client for sequence in (*streams, *prompts))
    decoding = Counter(stream.request.client for stream in streams)
    return sum(decoding[client] / heads[client] for client in heads) / max(1, len(heads))


def _prompt_of(sequence: Sequence) -> Prompt:
    return Prompt(
        key=sequence,
        size=sequence.prefill_end - sequence.num_cached,
        left=sequence.num_uncomputed,
        depth=sequence.num_computed,
        arrived=sequence.state.arrived,
        answer=sequence.max_new - sequence.num_generated,
    )
