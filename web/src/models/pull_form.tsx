// Pulls a model from the hub and shows its progress.
import { signal } from "@preact/signals";
import { messageOf, wasAborted } from "../api/http";
import { listSuggested, pullModel, type SuggestedModel } from "../api/models";
import { chosenModel, refreshModels } from "../state/models";
import { bytes, duration } from "../ui/format";
import { say } from "../ui/notice";

interface Pull {
  name: string;
  done: number;
  total: number;
  /** The server's message about it. */
  words: string;
  /** Bytes per second over the whole pull. */
  rate: number;
  controller: AbortController;
}

// Outside the component: a pull continues while another view is shown.
const pull = signal<Pull | null>(null);
const problem = signal<string | null>(null);
/** Null until the field is used for the first time. */
const suggested = signal<SuggestedModel[] | null>(null);

async function suggest(): Promise<void> {
  if (suggested.value !== null) return;
  suggested.value = [];
  try {
    suggested.value = await listSuggested();
  } catch {
    // Names can be typed without suggestions; the next use of the field tries again.
    suggested.value = null;
  }
}

async function start(name: string): Promise<void> {
  const controller = new AbortController();
  problem.value = null;
  let now: Pull = { name, done: 0, total: 0, words: "Looking it up", rate: 0, controller };
  pull.value = now;
  let first: { at: number; done: number } | null = null;
  try {
    for await (const news of pullModel(name, controller.signal)) {
      if (news.kind === "started") now = { ...now, total: news.total, words: news.reason };
      else if (news.kind === "message") now = { ...now, words: news.text };
      else if (news.kind === "progress") {
        // A resumed pull did not download the bytes of the earlier one just now.
        first ??= { at: performance.now(), done: news.done };
        const seconds = (performance.now() - first.at) / 1000;
        now = { ...now, done: news.done, total: news.total, rate: seconds > 0 ? (news.done - first.done) / seconds : 0 };
      } else {
        chosenModel.value = news.model;
        say(`${news.model} is here`);
      }
      pull.value = now;
    }
  } catch (error) {
    if (!wasAborted(error)) problem.value = messageOf(error);
  } finally {
    pull.value = null;
    await refreshModels();
  }
}

const SUGGESTED = "suggested-models";

export function PullForm() {
  const running = pull.value;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get("name") ?? "").trim();
    if (name) void start(name);
  };
  return (
    <section class="pull" aria-label="Get a model">
      <form class="row" onSubmit={submit}>
        <label class="fill">
          Get a model from the hub
          <input name="name" list={SUGGESTED} placeholder="org/repository, org/repository:Q4_K_M, or a name of the catalogue" onFocus={() => void suggest()} required disabled={running !== null} spellcheck={false} autocapitalize="off" />
        </label>
        <datalist id={SUGGESTED}>
          {suggested.value?.map((model) => (
            <option key={model.id} value={model.id} label={label(model)} />
          ))}
        </datalist>
        <button type="submit" class="primary" disabled={running !== null}>
          Pull
        </button>
      </form>
      {running && (
        <div class="pulling">
          <div class="pull-words">
            <strong>{running.name}</strong> <span class="hint">{words(running)}</span>
          </div>
          <div class="row">
            <progress class="fill" aria-label={`Pulling ${running.name}`} max={running.total || 1} {...(running.total > 0 ? { value: running.done } : {})} />
            <button type="button" onClick={() => running.controller.abort()}>
              Cancel
            </button>
          </div>
        </div>
      )}
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
    </section>
  );
}

function label({ title, kinds, size_bytes: size, memory_bytes: memory }: SuggestedModel): string {
  return `${title} · ${bytes(size)}, needs ${bytes(memory)} of memory · ${kinds.join(", ")}`;
}

function words({ done, total, rate, words: text }: Pull): string {
  if (done === 0) return text;
  const left = rate > 0 ? `, ${bytes(rate)}/s, ${duration((total - done) / rate)} left` : "";
  return `${bytes(done)} of ${bytes(total)}${left}`;
}
