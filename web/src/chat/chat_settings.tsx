// Settings of the open conversation: instructions, sampling, tools.
import { changeSettings, open } from "../state/conversations";
import { toolsOf, type ChatSettings, type Sampling } from "../state/conversation";
import { asMarkdown, download } from "../state/export";
import { messageOf } from "../api/http";
import { McpSettings } from "./mcp_settings";

const EFFORTS: [ChatSettings["effort"], string][] = [
  ["", "Model's default"],
  ["none", "Off"],
  ["low", "Short"],
  ["medium", "Medium"],
  ["high", "Long"],
];

const SAMPLERS: { name: keyof Sampling; title: string; min?: number; max?: number; step: number }[] = [
  { name: "top_p", title: "Top P", min: 0, max: 1, step: 0.05 },
  { name: "top_k", title: "Top K", min: 0, step: 1 },
  { name: "min_p", title: "Min P", min: 0, max: 1, step: 0.01 },
  { name: "repeat_penalty", title: "Repeat penalty", min: 0, step: 0.05 },
  { name: "presence_penalty", title: "Presence penalty", min: -2, max: 2, step: 0.1 },
  { name: "frequency_penalty", title: "Frequency penalty", min: -2, max: 2, step: 0.1 },
  { name: "seed", title: "Seed", min: 0, step: 1 },
];

export function ChatSettingsPanel() {
  const { settings } = open.value;
  return (
    <section class="chat-settings" aria-label="Settings of this chat">
      <label class="wide">
        Instructions (system prompt)
        <textarea rows={3} value={settings.system} onInput={(event) => changeSettings({ system: event.currentTarget.value })} />
      </label>
      <label>
        Temperature
        <input type="number" min={0} max={2} step={0.1} placeholder="default" value={settings.temperature ?? ""} onInput={(event) => changeSettings({ temperature: numberOf(event.currentTarget) })} />
      </label>
      {SAMPLERS.map(({ name, title, ...range }) => (
        <label key={name}>
          {title}
          <input type="number" {...range} placeholder="default" value={settings.sampling?.[name] ?? ""} onInput={(event) => changeSampling(name, numberOf(event.currentTarget))} />
        </label>
      ))}
      <label>
        Longest answer, in tokens
        <input type="number" min={1} step={1} placeholder="no limit" value={settings.maxTokens ?? ""} onInput={(event) => changeSettings({ maxTokens: numberOf(event.currentTarget) })} />
      </label>
      <label>
        Thinking
        <select value={settings.effort} onChange={(event) => changeSettings({ effort: event.currentTarget.value as ChatSettings["effort"] })}>
          {EFFORTS.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <McpSettings />
      <label class="wide">
        Tools (a JSON list in OpenAI's form). You enter the results of their calls.
        <textarea rows={4} spellcheck={false} class="code" value={settings.tools} aria-invalid={toolsProblem(settings) !== null} onInput={(event) => changeSettings({ tools: event.currentTarget.value })} />
      </label>
      {toolsProblem(settings) && <p class="problem wide">{toolsProblem(settings)}</p>}
      <div class="wide">
        <button type="button" disabled={open.value.messages.length === 0} onClick={save}>
          Download this chat
        </button>
      </div>
    </section>
  );
}

function changeSampling(name: keyof Sampling, value: number | null): void {
  const { [name]: _, ...others } = open.value.settings.sampling ?? {};
  changeSettings({ sampling: value === null ? others : { ...others, [name]: value } });
}

function save(): void {
  const conversation = open.value;
  const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "") || "chat";
  download(`${name}.md`, asMarkdown(conversation), "text/markdown");
}

function numberOf(input: HTMLInputElement): number | null {
  return input.value === "" || Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber;
}

function toolsProblem(settings: ChatSettings): string | null {
  try {
    toolsOf(settings);
    return null;
  } catch (error) {
    return messageOf(error);
  }
}
