// The choice of the model that answers.
import { chatModels, chosenModel, currentModel, modelsProblem } from "../state/models";
import { bytes } from "../ui/format";
import type { Model } from "../api/models";

const STATES: Partial<Record<Model["status"]["value"], string>> = {
  loaded: "loaded",
  loading: "loading…",
  failed: "failed",
};

export function ModelChoice() {
  if (modelsProblem.value !== null) return <span class="problem">{modelsProblem.value}</span>;
  return (
    <div class="model-choice">
      <select aria-label="Model" value={currentModel.value?.id ?? ""} onChange={(event) => (chosenModel.value = event.currentTarget.value)}>
        {chatModels.value.map((model) => (
          <option key={model.id} value={model.id}>
            {model.id} ({STATES[model.status.value] ?? bytes(model.size_bytes)})
          </option>
        ))}
        {chatModels.value.length === 0 && <option value="">no model</option>}
      </select>
    </div>
  );
}
