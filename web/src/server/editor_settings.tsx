// Settings to paste into other programs.
import { useEffect, useState } from "preact/hooks";
import { listClients, type Client } from "../api/clients";
import { messageOf, wasAborted } from "../api/http";
import { apiKey } from "../state/key";
import { currentModel } from "../state/models";
import { CopyButton } from "../ui/copy";
import { SAMPLES, type Place } from "./samples";

interface Shown {
  title: string;
  where: string;
  text: string | null;
  steps: string[];
}

export function EditorSettings() {
  const [chosen, setChosen] = useState(SAMPLES[0]!.name);
  const model = currentModel.value?.id ?? "";
  const { clients, problem } = useClients(model);
  const all = [...samples(model), ...clients.map(shown)];
  const { title, where, text, steps } = all.find((each) => each.title === chosen) ?? all[0]!;
  return (
    <section aria-label="Settings for other programs">
      <h2>Use it in</h2>
      <div class="label-row">
        <select aria-label="Program" class="narrow" value={title} onChange={(event) => setChosen(event.currentTarget.value)}>
          {all.map((each) => (
            <option key={each.title}>{each.title}</option>
          ))}
        </select>
        <span class="hint">{where}</span>
        {text !== null && <CopyButton text={text} label="Copy settings" />}
      </div>
      {text !== null && (
        <pre class="code-box" tabIndex={0}>
          {text}
        </pre>
      )}
      {steps.length > 0 && (
        <ol class="steps">
          {steps.map((step) => (
            <li key={step}>{step}</li>
          ))}
        </ol>
      )}
      {problem !== null && <p class="problem">{problem}</p>}
    </section>
  );
}

function samples(model: string): Shown[] {
  const url = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const place: Place = { url, model: model || "jan-tiny", keyed: apiKey.value !== "" };
  const steps = place.keyed ? ["Put your key where it says YOUR-KEY."] : [];
  return SAMPLES.map(({ name, where, settings }) => ({ title: name, where, text: settings(place), steps }));
}

function shown({ title, path, settings, steps }: Client): Shown {
  return { title, where: path ?? "in its own settings", text: settings, steps };
}

/** The programs that the server knows, for this model. */
function useClients(model: string): { clients: Client[]; problem: string | null } {
  const [found, setFound] = useState<{ clients: Client[]; problem: string | null }>({ clients: [], problem: null });
  useEffect(() => {
    if (!model) return undefined;
    const controller = new AbortController();
    listClients(model, controller.signal).then(
      (clients) => setFound({ clients, problem: null }),
      (error: unknown) => {
        if (!wasAborted(error)) setFound({ clients: [], problem: messageOf(error) });
      },
    );
    return () => controller.abort();
  }, [model]);
  return found;
}
