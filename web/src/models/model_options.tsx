// What the settings of one model are, what they mean, and the lines of the configuration file that change them.
import { useState } from "preact/hooks";
import type { Model } from "../api/models";
import { CopyButton } from "../ui/copy";

interface Option {
  key: string;
  title: string;
  meaning: string;
  now: (model: Model) => string;
  min: number;
}

const OPTIONS: Option[] = [
  { key: "n_ctx", title: "Context, in tokens", meaning: "The longest conversation, with its answer. More needs more memory.", now: ({ context_length }) => context_length?.toLocaleString("en") ?? "", min: 64 },
  { key: "parallel", title: "Answers at once", meaning: "Further requests wait. All of them share the context.", now: ({ parallel }) => String(parallel ?? ""), min: 1 },
  { key: "n_gpu_layers", title: "Layers on the accelerator", meaning: "The others are computed by the CPU, which is slower. By default as many as fit.", now: ({ device }) => device ?? "", min: 0 },
  { key: "ttl_s", title: "Seconds until it is unloaded", meaning: "An idle model leaves the memory after this time. -1 keeps it.", now: ({ ttl_s }) => (ttl_s === null ? "" : `${Math.ceil(ttl_s)} s left`), min: -1 },
];

export function ModelOptions({ model }: { model: Model }) {
  const [wanted, setWanted] = useState<Record<string, string>>({});
  const lines = OPTIONS.filter(({ key }) => /^-?\d+$/.test(wanted[key] ?? "")).map(({ key }) => `${key} = ${Number(wanted[key])}`);
  // A string of JSON is one of TOML too.
  const text = [`[models.${JSON.stringify(model.id)}]`, ...lines].join("\n");
  return (
    <div class="details">
      <div class="options">
        {OPTIONS.map(({ key, title, meaning, now, min }) => (
          <label key={key}>
            {title}
            <input type="number" min={min} step={1} placeholder={now(model) || "default"} value={wanted[key] ?? ""} aria-describedby={`${key}-${model.id}`} onInput={(event) => setWanted({ ...wanted, [key]: event.currentTarget.value })} />
            <span class="hint" id={`${key}-${model.id}`}>
              {meaning}
            </span>
          </label>
        ))}
      </div>
      {lines.length > 0 && (
        <>
          <div class="label-row">
            <span>
              Add these lines to the configuration file, which <code>jan-serve config</code> names. The server takes them up at once.
            </span>
            <CopyButton text={text} label={`Copy settings of ${model.id}`} />
          </div>
          <pre class="code-box" tabIndex={0} aria-label={`Settings of ${model.id}`}>
            {text}
          </pre>
        </>
      )}
    </div>
  );
}
