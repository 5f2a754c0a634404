// Models that other programs have on this machine: one button uses one, without a copy.
import { useEffect, useState } from "preact/hooks";
import { importModel, listFound, type FoundModel } from "../api/models";
import { messageOf } from "../api/http";
import { chosenModel, models, refreshModels } from "../state/models";
import { bytes } from "../ui/format";
import { say } from "../ui/notice";

export function FoundModels() {
  const { found, refresh } = useFound();
  const [busy, setBusy] = useState(false);
  const fresh = found.filter(({ state }) => state === "new");
  const unusable = found.filter(({ state }) => state === "unusable");
  if (fresh.length + unusable.length === 0) return null;
  const use = async (chosen: FoundModel[]) => {
    setBusy(true);
    try {
      for (const { id } of chosen) chosenModel.value = await importModel(id);
      say(chosen.length === 1 ? `${chosen[0]!.id} is here` : `${chosen.length} models are here`);
    } catch (error) {
      say(messageOf(error), true);
    } finally {
      await Promise.all([refresh(), refreshModels()]);
      setBusy(false);
    }
  };
  return (
    <section aria-label="Models of other programs">
      <div class="section-head">
        <h2>On this machine, from {programs(found)}</h2>
        {fresh.length > 1 && (
          <button type="button" disabled={busy} onClick={() => void use(fresh)}>
            Use all {fresh.length}
          </button>
        )}
      </div>
      <p class="hint">jan-serve links them. Nothing is copied, and the other program keeps them.</p>
      <ul class="rows" aria-label="Found models">
        {fresh.map((model) => (
          <li key={model.id}>
            <span class="row-name">{model.id}</span>
            <span class="hint">
              {model.program} · {bytes(model.size_bytes)}
            </span>
            <button type="button" disabled={busy} aria-label={`Use ${model.id}`} onClick={() => void use([model])}>
              Use it
            </button>
          </li>
        ))}
      </ul>
      {unusable.length > 0 && (
        <details>
          <summary>{unusable.length === 1 ? "One cannot be used" : `${unusable.length} cannot be used`}</summary>
          <ul class="facts">
            {unusable.map(({ id, program, reason }) => (
              <li key={`${program} ${id}`}>
                {id} ({program}): {reason}
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function programs(found: FoundModel[]): string {
  const names = [...new Set(found.map(({ program }) => program))];
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : (names[0] ?? "");
}

function useFound() {
  const [found, setFound] = useState<FoundModel[]>([]);
  // Without an answer there is nothing to offer.
  const refresh = () => listFound().then(setFound, () => setFound([]));
  // What is deleted here can be imported again.
  useEffect(() => void refresh(), [models.value.length]);
  return { found, refresh };
}
