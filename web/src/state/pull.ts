// The pull in progress, and the catalogue's models that can be pulled.
import { computed, effect, signal } from "@preact/signals";
import { messageOf, wasAborted } from "../api/http";
import { listSuggested, pullModel, type SuggestedModel } from "../api/models";
import { say } from "../ui/notice";
import { chosenModel, models, refreshModels } from "./models";

export interface Pull {
  name: string;
  done: number;
  total: number;
  /** The server's message about it. */
  words: string;
  /** Bytes per second over the whole pull. */
  rate: number;
  /** The model's name, once it is known. */
  target: string;
  /** null while it is paused. */
  controller: AbortController | null;
}

const NAME = "pull";

/** The pull that runs or is paused. It continues while another view is shown, and is paused when the page closes. */
export const pull = signal<Pull | null>(stored());
export const pullProblem = signal<string | null>(null);
export const isPulling = computed(() => pull.value !== null && pull.value.controller !== null);

effect(() => {
  if (pull.value === null) localStorage.removeItem(NAME);
  else localStorage.setItem(NAME, JSON.stringify({ name: pull.value.name, done: pull.value.done, total: pull.value.total }));
});

function stored(): Pull | null {
  try {
    const { name, done, total } = JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Pull>;
    return typeof name === "string" && total ? { name, done: Number(done), total: Number(total), words: "", rate: 0, target: "", controller: null } : null;
  } catch {
    return null; // of another version
  }
}

/** The server keeps what it has received. */
export function pausePull(): void {
  pull.value?.controller?.abort();
}

export function forgetPull(): void {
  if (!isPulling.value) pull.value = null;
  pullProblem.value = null;
}

const catalogue = signal<SuggestedModel[]>([]);

/** Models of the catalogue that are not on this machine. */
export const suggested = computed(() => {
  const here = new Set(models.value.flatMap(({ id, aliases }) => [id, ...aliases]));
  return catalogue.value.filter(({ id }) => !here.has(id));
});

/** Reads the catalogue, unless it is there. */
export async function suggest(): Promise<void> {
  if (catalogue.value.length > 0) return;
  try {
    catalogue.value = await listSuggested();
  } catch {
    // Names can be typed without suggestions; the next view that shows them tries again.
  }
}

/** Pulls a model, which new chats then use. */
export async function startPull(name: string): Promise<void> {
  if (isPulling.value) return;
  const controller = new AbortController();
  pullProblem.value = null;
  const paused = pull.value?.name === name ? pull.value : null;
  let now: Pull = { name, done: paused?.done ?? 0, total: paused?.total ?? 0, words: "Looking it up", rate: 0, target: "", controller };
  pull.value = now;
  let first: { at: number; done: number } | null = null;
  try {
    for await (const news of pullModel(name, controller.signal)) {
      if (news.kind === "started") now = { ...now, total: news.total, words: news.reason, target: news.name };
      else if (news.kind === "message") now = { ...now, words: news.text };
      else if (news.kind === "progress") {
        // A resumed pull did not download the bytes of the earlier one just now.
        first ??= { at: performance.now(), done: news.done };
        const seconds = (performance.now() - first.at) / 1000;
        now = { ...now, done: news.done, total: news.total, rate: seconds > 0 ? (news.done - first.done) / seconds : 0 };
      } else {
        chosenModel.value = news.model;
        say(`${news.model} is here`);
        now = { ...now, total: 0 };
      }
      pull.value = now;
    }
    // A stream that ends without a word is one that broke off.
    if (now.total > 0) pullProblem.value = "The connection broke off. What is received stays.";
  } catch (error) {
    if (!wasAborted(error)) pullProblem.value = messageOf(error);
  } finally {
    pull.value = now.total > 0 ? { ...now, rate: 0, controller: null } : null;
    await refreshModels();
  }
}
