"""The models in memory: loads, grants, evictions, idle unloads and crashes, decided in one place.

Only one task of the model manager calls `advance`, which alone loads and unloads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from jan_serve.core.models import ModelFacts, ModelSource
from jan_serve.errors import JanServeError, ModelFailed, copy_error
from jan_serve.ipc.messages import LoadModel
from jan_serve.placement.report import advice, lines
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.eviction import (
    CannotFit,
    Evict,
    Excluded,
    Load,
    Retention,
    Room,
    Wait,
    free_for_models,
    load_error,
    plan_load,
    unload_due_s,
)
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.resident_model import LoadState, ResidentModel
from jan_serve.supervisor.models.source_resolver import GOOD_FOR_S, LoadNeeds, LoadPreparation
from jan_serve.supervisor.workers.spare_worker import SpareWorker
from jan_serve.supervisor.workers.worker_process import WorkerEnd, WorkerProcess


class LeaseQueue:
    """All waiting requests in order of arrival, each the future of its model. It leaves when granted, rejected or
    cancelled."""

    def __init__(self) -> None:
        self._sources: dict[asyncio.Future[ResidentModel], ModelSource] = {}
        self._patient: set[asyncio.Future[ResidentModel]] = set()

    def join(self, source: ModelSource, *, patient: bool = False) -> asyncio.Future[ResidentModel]:
        """Returns what gets the model, or the rejection. patient: waits through a back-off of any length."""
        granted = asyncio.get_running_loop().create_future()
        self._sources[granted] = source
        if patient:
            self._patient.add(granted)
        return granted

    def leave(self, granted: asyncio.Future[ResidentModel]) -> None:
        """No effect if it was granted or rejected already."""
        self._sources.pop(granted, None)
        self._patient.discard(granted)

    def sources(self) -> tuple[ModelSource, ...]:
        """The requested sources, without duplicates, oldest request first."""
        return tuple(dict.fromkeys(self._sources.values()))

    def waiting(self, name: str) -> int:
        return sum(source.name == name for source in self._sources.values())

    def take(self, source: ModelSource, *, patient: bool = True) -> list[asyncio.Future[ResidentModel]]:
        """Remove all requests for this source; returns those not cancelled, oldest first. patient: patient ones too."""
        of_source = [granted for granted, wanted in self._sources.items() if wanted == source]
        taken = [granted for granted in of_source if patient or granted not in self._patient]
        for granted in taken:
            self.leave(granted)
        return [granted for granted in taken if not granted.done()]

    def refuse(self, source: ModelSource, error: JanServeError, *, patient: bool = True) -> None:
        """Remove requests as `take` does, and fail each with the error."""
        for granted in self.take(source, patient=patient):
            granted.set_exception(copy_error(error))

    def __len__(self) -> int:
        return len(self._sources)


logger = logging.getLogger(__name__)


class LoadedModels:
    """All models of a manager, loaded or requested. Event loop only; no method blocks or waits."""

    def __init__(
        self,
        command: Sequence[str],
        limits: ManagerLimits,
        clock: Callable[[], float],
        preparation: LoadPreparation,
        on_change: Callable[[], None],
        spare: SpareWorker,
        on_load: Callable[[], None],
    ) -> None:
        """on_change makes the manager's task call `advance` again; on_load: a load has begun. Both return at once."""
        self.residents: dict[str, ResidentModel] = {}
        self.histories: dict[str, ModelHistory] = {}
        """Every model that was requested, by name."""
        self.queue = LeaseQueue()
        self.held_back: frozenset[str] = frozenset()
        """Models that get no new request because another model waits for their room."""
        self.being_removed: set[str] = set()
        """Models that may not load because their files are being deleted."""
        self._command = tuple(command)
        self._limits = limits
        self._clock = clock
        self._preparation = preparation
        self._on_change = on_change
        self._spare = spare
        self._on_load = on_load

    @property
    def busy(self) -> bool:
        """A request holds a model or waits for one."""
        return len(self.queue) > 0 or any(resident.leases for resident in self.residents.values())

    def seen(self, source: ModelSource, retention: Retention) -> ModelHistory:
        """Record a request for this model."""
        history = self.histories.get(source.name)
        if history is None:
            history = self.histories[source.name] = ModelHistory(source, self._limits.restart)
        history.seen(source, retention)
        return history

    def must_wait(self, source: ModelSource) -> bool:
        """Earlier requests wait for this model, or for another one that needs its room."""
        return source.name in self.held_back or self.queue.waiting(source.name) > 0

    def refuse_all(self, error: JanServeError) -> None:
        for source in self.queue.sources():
            self.queue.refuse(source, error)

    def forget(self) -> None:
        """Call once every worker has ended."""
        self._preparation.forget_all()
        self.residents.clear()

    def advance(self) -> float | None:
        """Do all that is possible now. Returns the seconds until the next call without a wake-up; None is never."""
        for resident in list(self.residents.values()):
            match resident.state:
                case LoadState.LOADING:
                    self._advance_load(resident)
                case LoadState.READY if resident.worker.end is not None:
                    self._lost(resident, resident.worker.end)
                case LoadState.READY if resident.retiring and not resident.leases:
                    self._unload(resident, "as requested")
                case LoadState.GONE:
                    self._forget(resident)
                case _:
                    pass
        delays = [self._serve_queue(), self._unload_idle()]
        return min((delay for delay in delays if delay is not None), default=None)

    def _unload(self, resident: ResidentModel, why: str) -> None:
        logger.info("unloading %s: %s", resident.source.name, why)
        resident.stop()

    def _forget(self, resident: ResidentModel) -> None:
        """Its memory is free: earlier measurements are stale."""
        del self.residents[resident.source.name]
        self._preparation.forget_all()

    def _unload_idle(self) -> float | None:
        """Unload models that were idle for their keep-alive. Returns the seconds until the next one is due."""
        now = self._clock()
        due: list[float] = []
        for name, resident in self.residents.items():
            is_awaited = bool(self.queue.waiting(name))
            due_s = unload_due_s(resident.ttl_left_s(now), leases=resident.leases, is_awaited=is_awaited)
            if due_s == 0:
                self._unload(resident, "idle")
            elif due_s is not None:
                due.append(due_s)
        return min(due, default=None)

    def _advance_load(self, resident: ResidentModel) -> None:
        match resident.worker.outcome:
            case None:
                if resident.retiring or resident.source not in self.queue.sources():
                    logger.info("load of %s cancelled: no request waits for it", resident.source.name)
                    resident.stop()
            case ModelFacts() as facts:
                self._loaded(resident, facts)
            case WorkerEnd() as end if (
                resident.optional_projector is not None
                and not end.requested
                and end.status != _RAISED
                and resident.worker.pid is not None
                and not resident.history.has_loaded
            ):
                self._blame_projector(resident.optional_projector, resident, end)
            case WorkerEnd() as end:
                self._load_crashed(resident, end)
            case JanServeError() as error:
                self._refuse_load(resident.source, error, patience_s=self._limits.restart.patience_s)
                resident.stop()

    def _loaded(self, resident: ResidentModel, facts: ModelFacts) -> None:
        name, history = resident.source.name, resident.history
        if history.projector_fault:
            facts = msgspec.structs.replace(facts, projector_fault=history.projector_fault)
        history.loaded(facts)
        logger.info("%s is ready: %s, pid %s", name, _summary(facts), resident.worker.pid)
        if facts.placement_warning:
            logger.warning("%s: %s", name, facts.placement_warning)
        if len(facts.placement) > 1:
            for line in (*lines(facts.placement), *advice(facts.placement)):
                logger.info("%s: %s", name, line)
        if history.lost_devices:
            logger.warning(
                "%s: devices lost since an earlier load: %s", name, ", ".join(history.lost_devices)
            )
        resident.become_ready(facts)
        self._preparation.forget_all()
        if not resident.retiring:
            self._grant(resident)

    def _load_crashed(self, resident: ResidentModel, end: WorkerEnd) -> None:
        """See ModelHistory.load_crashed; else the requests that wait for it get an error."""
        history = resident.history
        self._lost(resident, end)
        if history.load_crashed(end, self._limits.retry):
            logger.warning("%s is loaded again: %s", resident.source.name, end)
            return
        message = f"The model `{resident.source.name}` could not be loaded: {end}."
        retry_after = history.verdict(self._clock()).delay_s or None
        error = ModelFailed(message, retry_after=retry_after, param="model")
        self.queue.refuse(resident.source, history.unusable() or error)

    def _blame_projector(self, projector: str, resident: ResidentModel, end: WorkerEnd) -> None:
        """The load is tried again, at last without the projector: llama.cpp ends the process at some damaged files."""
        fault = f"a load with its projector {Path(projector).name} ended the worker ({end})"
        history = resident.history
        history.projector_crashes.append(fault)
        next_try = "for text only" if history.projector_fault else "again"
        logger.warning("loading %s %s: %s", resident.source.name, next_try, fault)
        self._gone(resident)

    def _lost(self, resident: ResidentModel, end: WorkerEnd) -> None:
        """Its worker crashed. The client has failed its requests; their leases hold nothing."""
        by_request = resident.trial is not None and resident.trial.is_alone
        resident.history.ended(end, self._clock(), by_request=by_request)
        self._gone(resident)

    def _gone(self, resident: ResidentModel) -> None:
        resident.mark_gone()
        self._forget(resident)

    def _grant(self, resident: ResidentModel) -> None:
        for granted in self.queue.take(resident.source):
            resident.hold()
            granted.set_result(resident)

    def _serve_queue(self) -> float | None:
        """Grant, reject, load, or make room for each requested model. Returns the seconds until the next try."""
        held_back: frozenset[str] | None = None
        now = self._clock()
        pauses: list[float] = []
        sources = self.queue.sources()
        self._preparation.keep_only(sources)
        for name in self.histories.keys() - {source.name for source in sources}:
            self.histories[name].nobody_waits()
        for source in sources:
            if source.name in self.being_removed:
                continue
            resident = self.residents.get(source.name)
            if resident is not None and resident.source == source:
                if resident.usable and source.name not in (held_back or ()):
                    self._grant(resident)
                continue
            history = self.histories[source.name]
            verdict = history.verdict(now)
            if verdict.delay_s:
                if verdict.given_up or verdict.delay_s > self._limits.restart.patience_s:
                    unusable = history.unusable()
                    error = unusable or history.refusal(verdict)
                    # An answer that has begun waits for any pause.
                    self.queue.refuse(source, error, patient=unusable is not None)
                if self.queue.waiting(source.name):
                    pauses.append(verdict.delay_s)
            elif held_back is None:
                # First come, first served: later models get no room before this one, even if they would fit.
                held_back = self._provide(source)
                if held_back is not None:
                    pauses.append(GOOD_FOR_S)  # other programs may free memory
        self.held_back = held_back or frozenset()
        return min(pauses, default=None)

    def _provide(self, source: ModelSource) -> frozenset[str] | None:
        """Load it, make room for it, or reject it. Returns, while it waits, the models that get no new request."""
        needs = self._preparation.result(source)
        if needs is None:
            return frozenset()
        if isinstance(needs, JanServeError):
            self._refuse_load(source, needs)
            return None
        room = self._room(needs)
        group = self.histories[source.name].retention.group
        occupants = [resident.occupant() for resident in self.residents.values()]
        match plan_load(source.name, needs.footprint, group, occupants, room):
            case Load():
                self._load(source, needs, room)
                return None
            case Evict(names):
                for name in names:
                    is_reload = name == source.name  # an older revision of its file or settings
                    why = "reloaded with changed settings" if is_reload else f"evicted for {source.name}"
                    self._unload(self.residents[name], why)
                return frozenset(names)
            case Wait(names):
                return frozenset(names)
            case CannotFit() | Excluded() as reason:
                others = [name for name in self.residents if name != source.name]
                budget = self._limits.memory_budget
                self._refuse_load(source, load_error(source.name, needs.footprint, reason, others, budget))
                return None

    def _room(self, needs: LoadNeeds) -> Room:
        if needs.free is None:
            return Room(max_loaded=self._limits.max_loaded)
        residents = self.residents.values()
        used = [resident.memory for resident in residents]
        loading = sum(each.memory.on_device for each in residents if each.state is LoadState.LOADING)
        return Room(
            free_for_models(needs.free, used, self._limits.memory_budget),
            max(0, sum(needs.free.accelerators) - loading),
            self._limits.max_loaded,
            has_accelerators=bool(needs.free.accelerators),
        )

    def _refuse_load(self, source: ModelSource, error: JanServeError, *, patience_s: float = 0.0) -> None:
        """A load failed or cannot begin. Who has begun an answer waits for the next try, others for patience_s."""
        logger.warning("cannot load %s: %s", source.name, error)
        self._preparation.forget(source)
        pause_s = self.histories[source.name].load_failed(error, self._clock(), self._limits.retry)
        if pause_s is None or pause_s > patience_s:
            self.queue.refuse(source, error, patient=pause_s is None)

    def _load(self, source: ModelSource, needs: LoadNeeds, room: Room) -> None:
        settings, history = needs.settings, self.histories[source.name]
        if history.projector_fault:
            settings = msgspec.structs.replace(settings, projector=None)
        if room.free is not None:
            # If the worker chooses the context, it must fit into the memory measured as free.
            size = needs.footprint
            context_bytes = max(size.least_context, room.free - size.weights - size.working)
            # The memory budget covers the prompt cache in RAM too.
            cache_bytes = None if self._limits.memory_budget is None else max(0, room.free - size.total)
            settings = msgspec.structs.replace(
                settings, context_bytes=context_bytes, cache_ram_most=cache_bytes
            )
        load = LoadModel(path=source.path, settings=settings)
        worker = WorkerProcess(
            source.name, self._command, self._limits.worker, on_change=self._on_change, spare=self._spare
        )
        resident = ResidentModel(source, history, load, needs.footprint, worker, self._on_change, self._clock)
        self.residents[source.name] = resident
        self._preparation.forget_all()
        logger.info("loading %s", source.name)
        if reason := settings.unused_heads:
            logger.info("%s: its head for further tokens (MTP) is not used: %s", source.name, reason)
        resident.load(self._on_load)


_RAISED = "exit status 1"
"""End of a worker whose own code raised an exception. llama.cpp, which reads the projector, ends it otherwise."""


def _summary(facts: ModelFacts) -> str:
    layers = f", {facts.n_gpu_layers} of {facts.n_layer + 1} layers offloaded" if facts.n_gpu_layers else ""
    description = facts.description.replace(" ?B", "")  # llama.cpp's mark for a size that it does not know
    threads = "1 thread" if facts.threads == 1 else f"{facts.threads} threads"
    return (
        f"{description} on {facts.device}{layers}, {threads},"
        f" context {facts.n_ctx} for {facts.parallel} at once, loaded in {facts.load_seconds:.1f} s"
    )
