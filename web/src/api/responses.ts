// Answers in the background (/v1/responses): the server goes on with them while no page is open, and over its restarts.
import type { ChatNews, ChatRequest, Timings, WireMessage, WirePart } from "./chat";
import { overLostLines } from "./chat";
import { ApiError, call, postJson } from "./http";
import { readEvents } from "./sse";

/** How long a stop waits for the id of an answer that has just been asked for. */
const ID_MS = 2_000;

interface Response {
  id: string;
  status: string;
  error: { message: string; code: string } | null;
  incomplete_details: { reason?: string | null } | null;
  timings?: Timings;
  warnings?: string[];
}

interface ResponseEvent {
  type: string;
  sequence_number: number;
  response?: Response;
  delta?: string;
  output_index?: number;
  item?: { type: string; call_id: string; name: string };
}

/** The pieces of a new answer; the first has its id. Throws as streamChat. The signal ends it on the server, too. */
export function streamResponse(request: ChatRequest, signal: AbortSignal): AsyncGenerator<ChatNews> {
  const body = JSON.stringify(responseRequest(request));
  return pieces("", signal, (line) => call("v1/responses", { method: "POST", body, signal: line }));
}

/** The pieces of an answer from its beginning. Throws an ApiError with status 404 if the server has it no longer. */
export function followResponse(id: string, signal: AbortSignal): AsyncGenerator<ChatNews> {
  return pieces(id, signal, (line) => call(`v1/responses/${encodeURIComponent(id)}?stream=true`, { signal: line }));
}

async function* pieces(
  known: string,
  signal: AbortSignal,
  begin: (line: AbortSignal) => Promise<globalThis.Response>,
): AsyncGenerator<ChatNews> {
  let id = known;
  let last = -1;
  const line = new AbortController();
  const calls: number[] = [];
  const end = () => {
    if (id === "") return void setTimeout(() => line.abort(), ID_MS);
    line.abort();
    void postJson(`v1/responses/${id}/cancel`, {}).catch(() => undefined); // it has ended, or the server is away
  };
  async function* part(): AsyncGenerator<ChatNews> {
    const behind = `v1/responses/${id}?stream=true&starting_after=${last}`;
    const response = await (last < 0 ? begin(line.signal) : call(behind, { signal: line.signal }));
    const warning = response.headers.get("x-jan-serve-warning");
    if (warning !== null) yield { warnings: warning.split(", ") };
    for await (const { data } of readEvents(response)) {
      const event = JSON.parse(data) as ResponseEvent;
      last = event.sequence_number;
      if (id === "" && event.response) {
        id = event.response.id;
        yield { response: id };
        if (signal.aborted) end();
      }
      const news = newsOf(event, calls);
      if (news !== null) yield news;
      if (news?.finish !== undefined) return;
    }
    throw new ApiError("The answer broke off: the connection was closed.", 0, "cut");
  }
  signal.addEventListener("abort", end);
  try {
    yield* overLostLines(part, () => last >= 0, line.signal);
  } finally {
    signal.removeEventListener("abort", end);
  }
}

/** calls: the places of the calls so far among the items of the answer. */
function newsOf(event: ResponseEvent, calls: number[]): ChatNews | null {
  const { response, delta = "", output_index: place = 0 } = event;
  switch (event.type) {
    case "response.in_progress":
      return response?.warnings ? { warnings: response.warnings } : null;
    case "response.output_text.delta":
      return { text: delta };
    case "response.reasoning_text.delta":
      return { reasoning: delta };
    case "response.output_item.added": {
      if (event.item?.type !== "function_call") return null;
      const { call_id: id, name } = event.item;
      return { calls: [{ index: calls.push(place) - 1, id, function: { name } }] };
    }
    case "response.function_call_arguments.delta":
      return { calls: [{ index: calls.indexOf(place), function: { arguments: delta } }] };
    case "response.failed":
      throw new ApiError(response?.error?.message ?? "The answer failed.", 200, response?.error?.code);
    case "response.completed":
    case "response.incomplete":
      return { finish: finishOf(response!, calls.length > 0), ...(response?.timings && { timings: response.timings }) };
    default:
      return null;
  }
}

function finishOf({ status, incomplete_details: details }: Response, calls: boolean): string {
  if (status === "cancelled") return "stopped";
  if (status === "incomplete") return details?.reason ? "length" : "stop";
  return calls ? "tool_calls" : "stop";
}

/** The same request for /v1/responses. */
export function responseRequest({ messages, max_tokens, reasoning_effort, tools, ...rest }: ChatRequest): Record<string, unknown> {
  const request: Record<string, unknown> = { ...rest, input: messages.flatMap(itemsOf), background: true, stream: true };
  if (max_tokens !== undefined) request.max_output_tokens = max_tokens;
  if (reasoning_effort !== undefined) request.reasoning = { effort: reasoning_effort };
  if (tools !== undefined) request.tools = tools.map(flat);
  return request;
}

function itemsOf({ role, content, reasoning_content: thought, tool_calls: calls, tool_call_id: call }: WireMessage): unknown[] {
  const shown = Array.isArray(content) ? content.map(partOf) : content;
  if (role === "tool") return [{ type: "function_call_output", call_id: call, output: shown }];
  return [
    ...(thought ? [{ type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: thought }] }] : []),
    ...(shown === null ? [] : [{ role, content: shown }]),
    ...(calls ?? []).map(({ id, function: { name, arguments: text } }) => ({ type: "function_call", call_id: id, name, arguments: text })),
  ];
}

function partOf(part: WirePart): unknown {
  switch (part.type) {
    case "text":
      return { type: "input_text", text: part.text };
    case "image_url":
      return { type: "input_image", image_url: part.image_url.url };
    case "file":
      return { type: "input_file", ...part.file };
  }
}

/** A tool in the form of this route, which has no `function` around it. */
function flat(tool: unknown): unknown {
  if (typeof tool !== "object" || tool === null || !("function" in tool)) return tool;
  const { function: inner, ...outer } = tool;
  return { ...outer, ...(inner as object) };
}
