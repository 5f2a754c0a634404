// Streams of /v1/chat/completions.
import { ApiError, call, readError } from "./http";
import { readEvents } from "./sse";

export interface WireToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export type WirePart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: "file"; file: { filename: string; file_data: string } };

export interface WireMessage {
  role: "system" | "user" | "assistant" | "tool";
  content: string | WirePart[] | null;
  reasoning_content?: string;
  tool_calls?: WireToolCall[];
  tool_call_id?: string;
}

export interface ChatRequest {
  model?: string;
  messages: WireMessage[];
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repeat_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  seed?: number;
  max_tokens?: number;
  tools?: unknown[];
  reasoning_effort?: string;
  response_format?: unknown;
  grammar?: string;
}

export interface CallFragment {
  index: number;
  id?: string;
  function?: { name?: string; arguments?: string };
}

export interface Timings {
  prompt_n: number;
  cache_n: number;
  prompt_ms: number;
  predicted_n: number;
  predicted_per_second: number;
}

/** A piece of an answer. */
export interface ChatNews {
  text?: string;
  reasoning?: string;
  calls?: CallFragment[];
  finish?: string;
  timings?: Timings;
  /** Parts of the request that were limited. */
  warnings?: string[];
  /** The id of the answer, if the server goes on with it without this page. */
  response?: string;
}

interface Chunk {
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string; tool_calls?: CallFragment[] };
    finish_reason?: string | null;
  }[];
  timings?: Timings;
}

/** How often a stream is taken up again where its line broke, each time after a longer pause. */
const LOST_LINES = 5;
const BACK_MS = 1000;

/**
 * The pieces of one answer until it ends, over lines that break. Throws ApiError, also for an error inside the stream.
 */
export async function* streamChat(request: ChatRequest, signal: AbortSignal): AsyncGenerator<ChatNews> {
  const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  let last = "";
  const know = (id: string) => {
    last = id;
  };
  yield* overLostLines(() => streamPart(body, signal, last, know), () => last !== "", signal);
}

/** What `part` gives, which is called again where its line breaks. canGoOn: whether it knows from where. */
export async function* overLostLines(
  part: () => AsyncGenerator<ChatNews>,
  canGoOn: () => boolean,
  signal: AbortSignal,
): AsyncGenerator<ChatNews> {
  for (let lost = 0; ; lost++) {
    try {
      yield* part();
      return;
    } catch (error) {
      if (signal.aborted || !canGoOn() || lost === LOST_LINES || !isBrokenLine(error)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, lost * BACK_MS));
  }
}

/** Whether the connection failed, and not the request. */
export function isBrokenLine(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof ApiError && ["cut", "unreachable"].includes(error.code));
}

/** The pieces behind an event of the answer. know: gets the id of each event. */
async function* streamPart(
  body: string,
  signal: AbortSignal,
  last: string,
  know: (id: string) => void,
): AsyncGenerator<ChatNews> {
  const headers: HeadersInit = last === "" ? {} : { "last-event-id": last };
  const response = await call("v1/chat/completions", { method: "POST", body, signal, headers });
  const warning = response.headers.get("x-jan-serve-warning");
  if (warning !== null && last === "") yield { warnings: warning.split(", ") };
  for await (const { data, id } of readEvents(response)) {
    if (data === "[DONE]") return;
    const failure = readError(data, response.status);
    if (failure !== null) throw failure;
    const news = newsOf(JSON.parse(data) as Chunk);
    if (id !== undefined) know(id);
    if (news !== null) yield news;
  }
  if (!signal.aborted) throw new ApiError("The answer broke off: the connection was closed.", 0, "cut");
}

function newsOf(chunk: Chunk): ChatNews | null {
  const choice = chunk.choices?.[0];
  const news: ChatNews = {};
  if (choice?.delta?.content) news.text = choice.delta.content;
  if (choice?.delta?.reasoning_content) news.reasoning = choice.delta.reasoning_content;
  if (choice?.delta?.tool_calls) news.calls = choice.delta.tool_calls;
  if (choice?.finish_reason) news.finish = choice.finish_reason;
  if (chunk.timings) news.timings = chunk.timings;
  return Object.keys(news).length > 0 ? news : null;
}
