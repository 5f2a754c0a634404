// Models of the catalogue as cards with what they need, each a click away.
import { useEffect } from "preact/hooks";
import type { SuggestedModel } from "../api/models";
import { isPulling, startPull, suggest, suggested } from "../state/pull";
import { bytes, parameters } from "../ui/format";

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
      {models.map((model) => (
        <li class="card" key={model.id} aria-label={model.id}>
          <div class="card-head">
            <h3>{model.title}</h3>
            {model.fits !== null && <span class={`state ${model.fits ? "fits" : ""}`}>{model.fits ? "fits" : "needs more memory"}</span>}
          </div>
          <p class="note">{model.note}</p>
          <p class="facts">{[...model.kinds, `${parameters(model.n_params)} parameters`, `needs ${bytes(model.memory_bytes)} of memory`, model.licence].join(" · ")}</p>
          <div class="actions">
            <button type="button" disabled={isPulling.value} onClick={() => void startPull(model.id)}>
              Get it ({bytes(model.size_bytes)})
            </button>
          </div>
        </li>
      ))}
    </ul>
  );
}
