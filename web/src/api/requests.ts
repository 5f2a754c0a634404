// The requests that ask a model: those that run, the last that ended, and why one took its time.
import { getJson } from "./http";

export interface RequestLine {
  id: string;
  state: "waiting" | "reading" | "thinking" | "writing" | "done" | "failed" | "cancelled";
  started_at: string;
  route: string;
  program: string;
  model: string | null;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  first_token_s: number | null;
  total_s: number;
  tokens_per_second: number | null;
  error: string | null;
}

/** phases: seconds by name. causes: the longest first. */
export interface Why extends RequestLine {
  phases: Record<string, number>;
  causes: { code: string; seconds: number; text: string; advice: string }[];
}

/** The rendered prompts of a request. cached_characters: how many from the start that came from the cache; null if that is unknown. */
export interface Prompts {
  prompts: { text: string; cached_characters: number | null }[];
}

const SHOWN = 20;
const MOST = 512;

export async function listRequests(signal: AbortSignal): Promise<RequestLine[]> {
  return (await getJson<{ data: RequestLine[] }>(`extras/requests?limit=${SHOWN}`, signal)).data;
}

/** Requests and tokens of a day, a model and a program. */
export interface TotalLine {
  day: string;
  model: string;
  program: string;
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}

const DAYS = 7;

/** Of the last days that have any, the latest first. */
export async function listTotals(signal: AbortSignal): Promise<TotalLine[]> {
  return (await getJson<{ data: TotalLine[] }>(`extras/totals?days=${DAYS}`, signal)).data;
}

/** All that the server remembers, as JSON. */
export async function exportRequests(): Promise<string> {
  return JSON.stringify(await getJson(`extras/requests?limit=${MOST}`), null, 2);
}

/** Throws ApiError, with the code `prompt_not_kept` unless the server keeps prompts. */
export function readPrompts(id: string, signal: AbortSignal): Promise<Prompts> {
  return getJson<Prompts>(`extras/requests/${encodeURIComponent(id)}/prompt`, signal);
}

export function readWhy(id: string, signal?: AbortSignal): Promise<Why> {
  return getJson<Why>(`extras/why/${encodeURIComponent(id)}`, signal);
}
