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

export async function listRequests(signal?: AbortSignal): Promise<RequestLine[]> {
  return (await getJson<{ data: RequestLine[] }>("extras/requests?limit=20", signal)).data;
}

export function readWhy(id: string, signal?: AbortSignal): Promise<Why> {
  return getJson<Why>(`extras/why/${encodeURIComponent(id)}`, signal);
}
