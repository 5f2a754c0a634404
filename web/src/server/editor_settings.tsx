// What to paste into other programs, so that they use this server.
import { useState } from "preact/hooks";
import { currentModel } from "../state/models";
import { apiKey } from "../state/key";
import { CopyButton } from "../ui/copy";
import { CLIENTS, type Place } from "./clients";

export function EditorSettings() {
  const [chosen, setChosen] = useState(CLIENTS[0]!.name);
  const client = CLIENTS.find(({ name }) => name === chosen)!;
  const place: Place = {
    url: new URL(".", document.baseURI).href.replace(/\/$/, ""),
    model: currentModel.value?.id ?? "jan-tiny",
    keyed: apiKey.value !== "",
  };
  const text = client.settings(place);
  return (
    <section aria-label="Settings for other programs">
      <h2>Use it in</h2>
      <div class="label-row">
        <select aria-label="Program" class="narrow" value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
          {CLIENTS.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <span class="hint">{client.where}</span>
        <CopyButton text={text} label="Copy settings" />
      </div>
      <pre class="code-box" tabIndex={0}>
        {text}
      </pre>
      {place.keyed && <p class="hint">Put your key where it says YOUR-KEY.</p>}
    </section>
  );
}
