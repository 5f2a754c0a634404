// The local models: load, unload, delete, and the form that pulls others.
import { useState } from "preact/hooks";
import { deleteModel, loadModel, unloadModel, type Model } from "../api/models";
import { messageOf } from "../api/http";
import { chosenModel, embedsOnly, isBase, models, modelsProblem, refreshModels } from "../state/models";
import { goTo } from "../state/view";
import { bytes, parameters } from "../ui/format";
import { say } from "../ui/notice";
import { Catalogue } from "./catalogue";
import { PullForm } from "./pull_form";

export function ModelsView() {
  return (
    <div class="panel">
      <h1>Models</h1>
      {modelsProblem.value !== null && <p class="problem">{modelsProblem.value}</p>}
      <ul class="cards" aria-label="Models on this server">
        {models.value.map((model) => (
          <ModelCard key={model.id} model={model} />
        ))}
      </ul>
      {models.value.length === 0 && modelsProblem.value === null && <p class="hint">There are no models yet.</p>}
      <PullForm />
      <Catalogue />
    </div>
  );
}

function ModelCard({ model }: { model: Model }) {
  const [busy, setBusy] = useState(false);
  const { value, reason, progress } = model.status;
  const run = async (work: Promise<void>) => {
    setBusy(true);
    try {
      await work;
    } catch (error) {
      say(messageOf(error), true);
    } finally {
      await refreshModels();
      setBusy(false);
    }
  };
  const remove = () => {
    if (window.confirm(`Delete ${model.id} from this machine?`)) void run(deleteModel(model.id));
  };
  const chat = () => {
    chosenModel.value = model.id;
    goTo("chat");
  };
  return (
    <li class="card" aria-label={model.id}>
      <div class="card-head">
        <h2>{model.id}</h2>
        <span class={`state ${value}`}>{value}</span>
      </div>
      <p class="facts">{facts(model).join(" · ")}</p>
      {places(model).length > 0 && (
        <ul class="facts" aria-label={`Where ${model.id} is`}>
          {places(model).map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      {value === "loading" && <progress aria-label={`Loading ${model.id}`} max={1} {...(progress ? { value: progress.value } : {})} />}
      {reason && <p class="problem">{reason}</p>}
      <div class="actions">
        {!embedsOnly(model) && (
          <button type="button" onClick={chat}>
            Chat
          </button>
        )}
        {value === "loaded" || value === "loading" ? (
          <button type="button" disabled={busy} onClick={() => void run(unloadModel(model.id))}>
            Unload
          </button>
        ) : (
          <button type="button" disabled={busy || value === "unloading"} onClick={() => void run(loadModel(model.id))}>
            Load
          </button>
        )}
        {model.can_remove && (
          <button type="button" class="danger" disabled={busy} onClick={remove}>
            Delete
          </button>
        )}
      </div>
    </li>
  );
}

// Of a model on several devices, or not where it should be: the line of facts names the only one.
function places(model: Model): string[] {
  const { parts, advice } = model.placement ?? { parts: [], advice: [] };
  return parts.length > 1 || advice.length > 0 ? [...parts.map((part) => part.text), ...advice] : [];
}

function facts(model: Model): string[] {
  const { quantization, n_params } = model.meta;
  return [
    bytes(model.size_bytes),
    ...(n_params ? [`${parameters(n_params)} parameters`] : []),
    ...(quantization ? [quantization] : []),
    ...(model.context_length ? [`${model.context_length.toLocaleString("en")} tokens of context`] : []),
    ...(embedsOnly(model) ? ["embeddings"] : []),
    ...(isBase(model) ? ["base model"] : []),
    ...(model.memory ? [`${bytes(model.memory.resident || model.memory.weights + model.memory.kv_cache)} in memory`] : []),
    ...(model.device ? [model.device] : []),
    model.source,
  ];
}
