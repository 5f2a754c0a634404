// The pull in progress, and the catalogue's models that can be pulled.
import { computed, signal } from "@preact/signals";
import { messageOf, wasAborted } from "../api/http";
import { listSuggested, pullModel, type SuggestedModel } from "../api/models";
import { say } from "../ui/notice";
import { chosenModel, models, refreshModels } from "./models";

const OFFERED = 3;

export interface Pull {
  name: string;
  done: number;
  total: number;
  /** The server's message about it. */
  words: string;
  /** Bytes per second over the whole pull. */
  rate: number;
  controller: AbortController;
}

/** It continues while another view is shown. */
export const pull = signal<Pull | null>(null);
export const pullProblem = signal<string | null>(null);

const catalogue = signal<SuggestedModel[]>([]);

/** Models of the catalogue that are not on this machine. */
export const suggested = computed(() => {
  const here = new Set(models.value.flatMap(({ id, aliases }) => [id, ...aliases]));
  return catalogue.value.filter(({ id }) => !here.has(id));
});

/** Up to three models for any purpose that fit this machine: the smallest, the largest and one between. */
export const offered = computed(() => {
  const chats = suggested.value.filter(({ kinds, fits }) => kinds.includes("tools") && !kinds.includes("code") && fits !== false).sort((one, other) => one.memory_bytes - other.memory_bytes);
  const at = Array.from({ length: OFFERED }, (_, index) => Math.round((index * (chats.length - 1)) / (OFFERED - 1)));
  return [...new Set(at)].flatMap((index) => chats[index] ?? []);
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
  if (pull.value !== null) return;
  const controller = new AbortController();
  pullProblem.value = null;
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
    if (!wasAborted(error)) pullProblem.value = messageOf(error);
  } finally {
    pull.value = null;
    await refreshModels();
  }
}
