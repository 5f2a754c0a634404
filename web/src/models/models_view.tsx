// The local models: load, unload, delete, and the form that pulls others.
import { useState } from "preact/hooks";
import { loadModel, unloadModel, type Model } from "../api/models";
import { messageOf } from "../api/http";
import { chosenModel, downloading, embedsOnly, isBase, models, modelsProblem, refreshModels, removeModel } from "../state/models";
import { pull } from "../state/pull";
import { goTo } from "../state/view";
import { bytes, parameters } from "../ui/format";
import { say } from "../ui/notice";
import { Catalogue } from "./catalogue";
import { FoundModels } from "./found_models";
import { ModelOptions } from "./model_options";
import { PullForm } from "./pull_form";

const SOURCES: Record<string, string> = {
  hub: "from the hub",
  folder: "your own file",
  "built in": "built in",
  ollama: "from Ollama",
  lmstudio: "from LM Studio",
  jan: "from Jan",
  created: "created here",
  "hf-cache": "from the Hugging Face cache",
};

export function ModelsView() {
  const others = downloading.value.filter((id) => id !== pull.value?.target);
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
      {others.length > 0 && <p class="hint">Another program downloads {others.join(", ")}.</p>}
      <FoundModels />
      <Catalogue />
    </div>
  );
}

function ModelCard({ model }: { model: Model }) {
  const [busy, setBusy] = useState(false);
  const [open, setOpen] = useState(false);
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
      {model.enough_for.length > 0 && (
        <ul class="facts" aria-label={`What ${model.id} is enough for`}>
          {model.enough_for.map((text) => (
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
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          Settings
        </button>
        {model.can_remove && (
          <button type="button" class="danger" disabled={busy} onClick={() => removeModel(model)}>
            Delete
          </button>
        )}
      </div>
      {open && <ModelOptions model={model} />}
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
    SOURCES[model.source] ?? `from ${model.source}`,
  ];
}
