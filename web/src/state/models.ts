// The list of models that all views share, and the one that new chats use.
import { computed, effect, signal } from "@preact/signals";
import { deleteModel, listModels, type Model } from "../api/models";
import { messageOf } from "../api/http";
import { say } from "../ui/notice";
import { offerUndo } from "./undo";

const NAME = "model";
const SLOW_MS = 15_000;
const FAST_MS = 700;

const listed = signal<Model[]>([]);
/** Those that are deleted unless the user takes that back. */
const deleted = signal<ReadonlySet<string>>(new Set());

export const models = computed(() => listed.value.filter(({ id, status }) => status.value !== "downloading" && !deleted.value.has(id)));
/** Names of those that are being downloaded. */
export const downloading = computed(() => listed.value.filter(({ status }) => status.value === "downloading").map(({ id }) => id));
export const modelsProblem = signal<string | null>(null);
const defaultModel = signal("");
export const chosenModel = signal(localStorage.getItem(NAME) ?? "");

effect(() => localStorage.setItem(NAME, chosenModel.value));

/** Models that answer chats. */
export const chatModels = computed(() => models.value.filter((model) => !embedsOnly(model)));

/** The chosen model if it still exists, else the server's default, else a loaded one, else the first. */
export const currentModel = computed(() => {
  const named = (name: string) => chatModels.value.find((model) => model.id === name);
  const loaded = chatModels.value.find((model) => model.status.value === "loaded");
  return named(chosenModel.value) ?? named(defaultModel.value) ?? loaded ?? chatModels.value[0];
});

/** Whether the model is known for embeddings only, by its pooling. */
export function embedsOnly(model: Model): boolean {
  const pooling = model.meta.pooling;
  return typeof pooling === "string" && pooling !== "none";
}

/** Whether it continues text, for lack of a chat template. Unknown until its header is read. */
export function isBase(model: Model | undefined): boolean {
  return model !== undefined && !embedsOnly(model) && model.meta.has_chat_template === false;
}

/** Whether the server has no model but the built-in one, which is for trying the server. */
export const onlyBuiltIn = computed(() => models.value.length > 0 && models.value.every(({ source }) => source === "built in"));

export function seesImages(model: Model | undefined): boolean {
  return model?.architecture.input_modalities.includes("image") ?? false;
}

export async function refreshModels(): Promise<void> {
  try {
    const found = await listModels();
    listed.value = found.data;
    defaultModel.value = found.default ?? "";
    modelsProblem.value = null;
  } catch (error) {
    modelsProblem.value = messageOf(error);
  }
}

/** Deletes a model, unless the user takes that back in time. */
export function removeModel({ id }: Model): void {
  deleted.value = new Set(deleted.value).add(id);
  const show = () => {
    const left = new Set(deleted.value);
    left.delete(id);
    deleted.value = left;
  };
  const commit = async () => {
    try {
      await deleteModel(id);
      await refreshModels();
    } catch (error) {
      say(messageOf(error), true);
    } finally {
      show();
    }
  };
  offerUndo({ text: `${id} is deleted`, takeBack: show, commit: () => void commit() });
}

/** Refreshes the list: often while something changes, otherwise rarely, never in a hidden tab. Returns a function that stops it. */
export function watchModels(): () => void {
  let timer = 0;
  const look = () => {
    if (document.visibilityState === "visible") void refreshModels();
  };
  // Every response, whichever view requested it, schedules the next request.
  const stop = effect(() => {
    const changing = models.value.some(({ status }) => status.value === "loading" || status.value === "unloading");
    window.clearInterval(timer);
    timer = window.setInterval(look, changing ? FAST_MS : SLOW_MS);
  });
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    stop();
    window.clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
  };
}
