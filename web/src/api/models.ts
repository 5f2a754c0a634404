// The models of this server: listed, loaded, unloaded, pulled, deleted.
import { call, getJson, postJson, readError } from "./http";
import { readEvents } from "./sse";

export interface ModelStatus {
  value: "unloaded" | "loading" | "loaded" | "unloading" | "failed" | "downloading";
  reason?: string;
  /** Of a load. */
  progress?: { value: number };
}

export interface Model {
  id: string;
  aliases: string[];
  source: string;
  can_remove: boolean;
  size_bytes: number;
  architecture: { input_modalities: string[] };
  status: ModelStatus;
  context_length: number | null;
  meta: { quantization?: string | null; n_params?: number | null; title?: string | null; pooling?: string | null; has_chat_template?: boolean };
  running: number;
  queued: number;
  memory: { weights: number; kv_cache: number; resident: number } | null;
  parallel: number | null;
  /** Seconds until it is unloaded if idle. */
  ttl_s: number | null;
  device: string | null;
  placement: { parts: { text: string }[]; advice: string[] } | null;
  /** What `jan-serve certify` found last: a sentence for each program. */
  enough_for: string[];
}

/** default: the model of requests that name none. A proxy has none. */
export interface ModelList {
  data: Model[];
  default?: string | null;
}

export async function listModels(signal?: AbortSignal): Promise<ModelList> {
  return getJson<ModelList>("models", signal);
}

export async function loadModel(name: string): Promise<void> {
  await postJson("models/load", { model: name, wait: false });
}

export async function unloadModel(name: string): Promise<void> {
  await postJson("models/unload", { model: name });
}

export async function deleteModel(name: string): Promise<void> {
  // By its file: an alias could name another model.
  const path = `${name}.gguf`.split("/").map(encodeURIComponent).join("/");
  // The page may be closing.
  await call(`models/${path}`, { method: "DELETE", keepalive: true });
}

/** A model of another program on the server's machine. id: its name here. */
export interface FoundModel {
  id: string;
  program: string;
  size_bytes: number;
  state: "new" | "already here" | "unusable";
  reason: string | null;
}

export async function listFound(): Promise<FoundModel[]> {
  return (await getJson<{ data: FoundModel[] }>("models/import")).data;
}

/** Links a found model; returns its name. */
export async function importModel(id: string): Promise<string> {
  return (await postJson<{ model: string }>("models/import", { model: id })).model;
}

/** A model of the catalogue, which can be pulled by its id. */
export interface SuggestedModel {
  id: string;
  title: string;
  kinds: string[];
  size_bytes: number;
  memory_bytes: number;
  n_params: number;
  licence: string;
  note: string;
  /** Whether so much memory is free on the server's machine; null if it does not know. */
  fits: boolean | null;
  /** Of an advised one: why it is advised, and what one answer may get on the CPU. */
  reason?: string;
  tokens_per_second?: number | null;
}

/** At most three models for a purpose, the recommended one first. bandwidth: of the memory, in bytes a second. */
export interface Advice {
  purpose: string;
  purposes: { id: string; title: string }[];
  machine: { memory_bytes: number; bandwidth: number };
  data: SuggestedModel[];
}

/** purpose: the server's usual one if it is empty. */
export async function readAdvice(purpose: string, signal: AbortSignal): Promise<Advice> {
  return getJson<Advice>(`extras/advice${purpose ? `?for=${encodeURIComponent(purpose)}` : ""}`, signal);
}

export async function listSuggested(): Promise<SuggestedModel[]> {
  return (await getJson<{ data: SuggestedModel[] }>("extras/catalogue")).data;
}

/** Progress of a pull. done and total in bytes. */
export type PullNews =
  | { kind: "started"; name: string; reason: string; total: number }
  | { kind: "progress"; done: number; total: number }
  | { kind: "message"; text: string }
  | { kind: "finished"; model: string };

interface PullEvent {
  event: string;
  data: Record<string, unknown>;
}

/** Throws ApiError, also for an error inside the stream. Aborting stops the pull; the server keeps the bytes received. */
export async function* pullModel(name: string, signal: AbortSignal): AsyncGenerator<PullNews> {
  const body = JSON.stringify({ model: name, stream: true });
  const response = await call("models/pull", { method: "POST", body, signal });
  for await (const { data } of readEvents(response)) {
    if (data === "[DONE]") return;
    const failure = readError(data, response.status);
    if (failure !== null) throw failure;
    const news = newsOf(JSON.parse(data) as PullEvent);
    if (news !== null) yield news;
  }
}

function newsOf({ event, data }: PullEvent): PullNews | null {
  switch (event) {
    case "download_started":
      return { kind: "started", name: String(data.name), reason: String(data.reason ?? ""), total: Number(data.total) };
    case "download_progress": {
      const files = Object.values(data) as { done: number; total: number }[];
      const sum = (key: "done" | "total") => files.reduce((total, file) => total + file[key], 0);
      return { kind: "progress", done: sum("done"), total: sum("total") };
    }
    case "download_message":
      return { kind: "message", text: String(data.message) };
    case "download_finished":
      return { kind: "finished", model: String(data.model) };
    default:
      return null;
  }
}
