// The data of a conversation, and its request to the server. Values only.
import { replacing } from "./versions";
import type { CallFragment, ChatNews, ChatRequest, Timings, WireMessage, WirePart } from "../api/chat";

export interface Attachment {
  kind: "image" | "text" | "pdf";
  name: string;
  /** A data: URL of an image or a PDF, or the text itself. */
  content: string;
}

export interface ToolCall {
  id: string;
  name: string;
  /** JSON, as the model wrote it. */
  arguments: string;
}

export interface Message {
  id: string;
  role: "user" | "assistant" | "tool";
  text: string;
  reasoning?: string;
  calls?: ToolCall[];
  /** For a tool's result: the id of its call. */
  callId?: string;
  attachments?: Attachment[];
  model?: string;
  finish?: string;
  /** The id of the answer that the server writes, until the text is here. */
  response?: string;
  error?: string;
  timings?: Timings;
  warnings?: string[];
  /** Number among the versions of this message; 0 is the first. versions: the others, each with all that follows it. */
  version?: number;
  versions?: Message[][];
}

/** Those that a chat may set, as the server names them; what is not there is the model's default. */
export type Sampling = Partial<Record<"top_p" | "top_k" | "min_p" | "repeat_penalty" | "presence_penalty" | "frequency_penalty" | "seed", number>>;

export interface ChatSettings {
  system: string;
  temperature: number | null;
  maxTokens: number | null;
  /** Chats of earlier versions have none. */
  sampling?: Sampling;
  /** "" is the model's default. */
  effort: "" | "none" | "low" | "medium" | "high";
  /** A JSON list of tools in OpenAI's form, or nothing. */
  tools: string;
  /** Whether the model may call the tools of MCP servers. */
  mcp?: boolean;
}

export interface Conversation {
  id: string;
  title: string;
  updated: number;
  settings: ChatSettings;
  messages: Message[];
  folder?: string;
  pinned?: boolean;
  /** What the server has of it: see ChatPage. */
  stored?: { store: string; version: number };
  /** Whether it has changed since. */
  unsaved?: boolean;
  /** Its messages are on the server only. */
  partial?: boolean;
}

const TITLE_CHARS = 48;

export function newConversation(): Conversation {
  const settings: ChatSettings = { system: "", temperature: null, maxTokens: null, effort: "", tools: "" };
  return { id: crypto.randomUUID(), title: "New chat", updated: Date.now(), settings, messages: [] };
}

export function newMessage(role: Message["role"], text: string): Message {
  return { id: crypto.randomUUID(), role, text };
}

export function titleOf(text: string): string {
  const line = text.trim().split("\n", 1)[0] ?? "";
  return line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS - 1)}…` : line || "New chat";
}

/** The messages up to a question, with this text and these attachments added to its own. Asks anew if it is not there. */
export function withEdit(messages: Message[], id: string, text: string, attachments: Attachment[] = []): Message[] {
  const at = messages.findIndex((message) => message.id === id);
  const known = messages[at];
  const before = known === undefined ? messages : messages.slice(0, at);
  const asked: Message = { ...(known ?? newMessage("user", text)), text, ...replacing(messages, at) };
  const attached = [...(known?.attachments ?? []), ...attachments];
  if (attached.length > 0) asked.attachments = attached;
  return [...before, asked];
}

/** The message with a piece added. */
export function withNews(message: Message, news: ChatNews): Message {
  const changed = { ...message };
  if (news.text) changed.text += news.text;
  if (news.reasoning) changed.reasoning = (changed.reasoning ?? "") + news.reasoning;
  if (news.calls) changed.calls = withFragments(changed.calls ?? [], news.calls);
  if (news.finish) changed.finish = news.finish;
  if (news.timings) changed.timings = news.timings;
  if (news.warnings) changed.warnings = news.warnings;
  if (news.response) changed.response = news.response;
  return changed;
}

function withFragments(calls: ToolCall[], fragments: CallFragment[]): ToolCall[] {
  const changed = [...calls];
  for (const { index, id, function: part } of fragments) {
    const known = changed[index] ?? { id: "", name: "", arguments: "" };
    changed[index] = {
      id: id ?? known.id,
      name: known.name + (part?.name ?? ""),
      arguments: known.arguments + (part?.arguments ?? ""),
    };
  }
  return changed;
}

/** The tools of the settings. Throws an Error that says what is wrong with them. */
export function toolsOf(settings: ChatSettings): unknown[] {
  if (settings.tools.trim() === "") return [];
  let tools: unknown;
  try {
    tools = JSON.parse(settings.tools);
  } catch (error) {
    throw new Error(`The tools are not JSON: ${error instanceof Error ? error.message : ""}`);
  }
  if (!Array.isArray(tools)) throw new Error("The tools have to be a JSON list.");
  return tools;
}

// What the server takes of one request (docs/images.md): base64 in a body of 32 MiB.
const MAX_IMAGES = 64;
const MAX_IMAGE_CHARS = 30_000_000;

/** others: further tools. Of more pictures than one request may have, the newest ones go, and the names of the others. */
export function chatRequest(conversation: Conversation, model: string, others: readonly unknown[] = []): ChatRequest {
  const { settings } = conversation;
  const sent = newestImages(conversation.messages);
  const request: ChatRequest = { model, messages: conversation.messages.flatMap((message) => wireMessage(message, sent)) };
  if (settings.system.trim()) request.messages.unshift({ role: "system", content: settings.system });
  if (settings.temperature !== null) request.temperature = settings.temperature;
  Object.assign(request, settings.sampling);
  if (settings.maxTokens !== null) request.max_tokens = settings.maxTokens;
  if (settings.effort) request.reasoning_effort = settings.effort;
  const tools = [...toolsOf(settings), ...others];
  if (tools.length > 0) request.tools = tools;
  return request;
}

function newestImages(messages: readonly Message[]): Set<Attachment> {
  const images = messages.flatMap(({ attachments }) => attachments ?? []).filter(({ kind }) => kind === "image");
  let chars = 0;
  const newest = images.reverse().slice(0, MAX_IMAGES);
  return new Set(newest.filter(({ content }) => (chars += content.length) <= MAX_IMAGE_CHARS));
}

function wireMessage(message: Message, sent: ReadonlySet<Attachment>): WireMessage[] {
  switch (message.role) {
    case "user":
      return [{ role: "user", content: userContent(message, sent) }];
    case "tool":
      return [{ role: "tool", content: userContent(message, sent), tool_call_id: message.callId ?? "" }];
    case "assistant": {
      if (!message.text && !message.calls?.length) return [];
      const wire: WireMessage = { role: "assistant", content: message.text || null };
      if (message.calls?.length) {
        wire.tool_calls = message.calls.map(({ id, name, arguments: text }) => ({
          id,
          type: "function",
          function: { name, arguments: text },
        }));
        // Thoughts before a call belong to the turn that continues after it.
        if (message.reasoning) wire.reasoning_content = message.reasoning;
      }
      return [wire];
    }
  }
}

function userContent(message: Message, sent: ReadonlySet<Attachment>): string | WirePart[] {
  const attachments = message.attachments ?? [];
  const files = attachments
    .filter((file) => !sent.has(file) && file.kind !== "pdf")
    .map(({ kind, name, content }) => (kind === "text" ? `${name}:\n\n${content}` : `[${name}]`));
  const text = [...files, message.text].join("\n\n");
  const images = attachments.filter((file) => sent.has(file));
  const pdfs = attachments.filter(({ kind }) => kind === "pdf");
  if (images.length + pdfs.length === 0) return text;
  return [
    ...pdfs.map(({ name, content }): WirePart => ({ type: "file", file: { filename: name, file_data: content } })),
    { type: "text", text },
    ...images.map(({ content }): WirePart => ({ type: "image_url", image_url: { url: content } })),
  ];
}
