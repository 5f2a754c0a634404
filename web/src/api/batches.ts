// Batches of requests, of both public forms, and the files that belong to them.
import { call, getJson, postJson } from "./http";

export const ENDPOINTS = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];

const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);
const MOST = 100;

/** Times in milliseconds since 1970. */
export interface Batch {
  id: string;
  /** Of the uploaded file; the id of the batch where that is unknown. */
  name: string;
  form: "openai" | "anthropic";
  state: string;
  ended: boolean;
  /** Why no line begins at the moment. */
  paused: string | null;
  endpoint: string;
  model: string | null;
  total: number;
  answered: number;
  failed: number;
  created: number;
  expires: number;
  /** What is wrong with the input. */
  faults: { line: number | null; message: string }[];
  /** Paths to download. */
  results: string | null;
  errors: string | null;
}

interface OpenAIBatch {
  id: string;
  status: string;
  paused: string | null;
  endpoint: string;
  model: string | null;
  input_file_id: string | null;
  output_file_id: string | null;
  error_file_id: string | null;
  created_at: number;
  expires_at: number;
  request_counts: { total: number; completed: number; failed: number };
  errors: { data: { line: number | null; message: string }[] } | null;
}

interface MessageBatch {
  id: string;
  processing_status: "in_progress" | "canceling" | "ended";
  request_counts: { processing: number; succeeded: number; errored: number; canceled: number; expired: number };
  created_at: string;
  expires_at: string;
  cancel_initiated_at: string | null;
  results_url: string | null;
}

interface List<T> {
  data: T[];
}

/** The newest of both forms, the latest first. */
export async function listBatches(signal: AbortSignal): Promise<Batch[]> {
  const [lines, messages, files] = await Promise.all([
    getJson<List<OpenAIBatch>>(`v1/batches?limit=${MOST}`, signal),
    getJson<List<MessageBatch>>(`v1/messages/batches?limit=${MOST}`, signal),
    getJson<List<{ id: string; filename: string }>>(`v1/files?purpose=batch&limit=${10 * MOST}`, signal),
  ]);
  const names = new Map(files.data.map(({ id, filename }) => [id, filename]));
  const all = [...lines.data.map((batch) => ofLines(batch, names)), ...messages.data.map(ofMessages)];
  return all.sort((one, other) => other.created - one.created);
}

function ofLines(batch: OpenAIBatch, names: ReadonlyMap<string, string>): Batch {
  const { total, completed, failed } = batch.request_counts;
  return {
    id: batch.id,
    name: names.get(batch.input_file_id ?? "") ?? batch.id,
    form: "openai",
    state: batch.status,
    ended: ENDED.has(batch.status),
    paused: batch.paused,
    endpoint: batch.endpoint,
    model: batch.model,
    total,
    answered: completed,
    failed,
    created: 1000 * batch.created_at,
    expires: 1000 * batch.expires_at,
    faults: batch.errors?.data ?? [],
    results: content(batch.output_file_id),
    errors: content(batch.error_file_id),
  };
}

function content(file: string | null): string | null {
  return file === null ? null : `v1/files/${encodeURIComponent(file)}/content`;
}

function ofMessages(batch: MessageBatch): Batch {
  const { processing, succeeded, errored, canceled, expired } = batch.request_counts;
  const ended = batch.processing_status === "ended";
  const end = batch.cancel_initiated_at !== null ? "cancelled" : expired > 0 ? "expired" : "completed";
  return {
    id: batch.id,
    name: batch.id,
    form: "anthropic",
    state: ended ? end : batch.processing_status === "canceling" ? "cancelling" : "in_progress",
    ended,
    paused: null,
    endpoint: "/v1/messages",
    model: null,
    total: processing + succeeded + errored + canceled + expired,
    answered: succeeded,
    failed: errored,
    created: Date.parse(batch.created_at),
    expires: Date.parse(batch.expires_at),
    faults: [],
    results: ended && batch.results_url !== null ? `v1/messages/batches/${encodeURIComponent(batch.id)}/results` : null,
    errors: null,
  };
}

/** Uploads lines and makes a batch of them. The file does not stay if there is no batch of it. */
export async function sendBatch(file: File): Promise<void> {
  const endpoint = await endpointOf(file);
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", file, file.name);
  const uploaded = (await (await call("v1/files", { method: "POST", body: form })).json()) as { id: string };
  try {
    await postJson("v1/batches", { input_file_id: uploaded.id, endpoint, completion_window: "24h" });
  } catch (error) {
    await call(`v1/files/${encodeURIComponent(uploaded.id)}`, { method: "DELETE" }).catch(() => undefined);
    throw error;
  }
}

const HEAD_BYTES = 4_000_000;

/** The endpoint that the first line names. Throws an Error that says what is wrong with the file. */
async function endpointOf(file: File): Promise<string> {
  const head = await file.slice(0, HEAD_BYTES).text();
  const line = head.split("\n").find((each) => each.trim() !== "");
  if (line === undefined) throw new Error(`${file.name} is empty`);
  let url: unknown;
  try {
    url = (JSON.parse(line) as { url?: unknown } | null)?.url;
  } catch {
    throw new Error(`${file.name}: the first line is not JSON. A batch is a file of JSON lines, one for each request.`);
  }
  if (typeof url !== "string" || !ENDPOINTS.includes(url)) {
    throw new Error(`${file.name}: url in the first line must be one of ${ENDPOINTS.join(", ")}`);
  }
  return url;
}

export async function cancelBatch({ id, form }: Batch): Promise<void> {
  const path = form === "openai" ? "v1/batches" : "v1/messages/batches";
  await postJson(`${path}/${encodeURIComponent(id)}/cancel`, {});
}

export async function readFile(path: string, signal?: AbortSignal): Promise<string> {
  return (await call(path, signal ? { signal } : {})).text();
}
