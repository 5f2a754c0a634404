// Models of the catalogue as cards with what they need, each a click away.
import { useEffect } from "preact/hooks";
import type { SuggestedModel } from "../api/models";
import { isPulling, startPull, suggest, suggested } from "../state/pull";
import { bytes, parameters } from "../ui/format";
import { Words } from "../ui/words";

export function Catalogue() {
  useEffect(() => void suggest(), []);
  if (suggested.value.length === 0) return null;
  return (
    <section aria-label="Suggested models">
      <h2>Suggested models</h2>
      <SuggestedCards models={suggested.value} />
    </section>
  );
}

export function SuggestedCards({ models }: { models: SuggestedModel[] }) {
  return (
    <ul class="cards narrow" aria-label="Models to get">
      {models.map((model, index) => (
        <li class="card" key={model.id} aria-label={model.id}>
          <div class="card-head">
            <h3>{model.title}</h3>
            {model.fits !== null && <span class={`state ${model.fits ? "fits" : ""}`}>{model.fits ? "fits" : "needs more memory"}</span>}
          </div>
          <p class="note">
            <Words text={model.note} />
          </p>
          {model.reason && <p class="reason">{model.reason}</p>}
          <p class="facts">{facts(model).join(" · ")}</p>
          <div class="actions">
            <button type="button" class={model.reason && index === 0 ? "primary" : ""} disabled={isPulling.value} onClick={() => void startPull(model.id)}>
              Get it ({bytes(model.size_bytes)})
            </button>
          </div>
        </li>
      ))}
    </ul>
  );
}

function facts({ kinds, n_params, memory_bytes, licence, tokens_per_second }: SuggestedModel): string[] {
  return [
    ...kinds,
    `${parameters(n_params)} parameters`,
    `needs ${bytes(memory_bytes)} of memory`,
    ...(tokens_per_second ? [`about ${Math.max(1, Math.round(tokens_per_second))} tokens/s here`] : []),
    licence,
  ];
}
