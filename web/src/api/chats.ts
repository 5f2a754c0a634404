// Chats that the server keeps for this key.
import type { ChatSettings, Conversation, Message } from "../state/conversation";
import { call, getJson, isMissing, postJson } from "./http";

/** A chat without its messages. */
export interface ChatHead {
  id: string;
  title: string;
  folder: string;
  pinned: boolean;
  updated: number;
  version: number;
  /** Where the words are that were sought. */
  excerpt: string;
}

export interface StoredChat extends ChatHead {
  settings: ChatSettings;
  messages: Message[];
}

export interface ChatPage {
  data: ChatHead[];
  /** Names the next page. */
  before: number | null;
  /** The owner and the file: another file if the server has lost all chats. null: it keeps none. */
  store: string | null;
}

export interface Imported {
  added: number;
  present: number;
  refused: { title: string; reason: string }[];
  /** What was read, if the server does not store it. */
  chats: StoredChat[];
}

/** What may change without a new version. */
export type ChatFacts = Partial<Pick<ChatHead, "title" | "folder" | "pinned">>;

const PIECE_CHARS = 4_000_000;

export function listChats(query: Record<string, string | number | boolean>): Promise<ChatPage> {
  const asked = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return getJson<ChatPage>(`extras/chats?${asked}`);
}

export function getChat(id: string): Promise<StoredChat> {
  return getJson<StoredChat>(`extras/chats/${encodeURIComponent(id)}`);
}

/** Throws ApiError, with status 409 if another version than this is there. */
export async function putChat(chat: Conversation, version: number): Promise<ChatHead> {
  const { title, folder, pinned, updated, settings, messages } = chat;
  const time = version === 0 ? { updated } : {}; // later the server's clock counts
  const body = JSON.stringify({ version, title: title.slice(0, 200), folder, pinned, ...time, settings, messages });
  const response = await call(`extras/chats/${encodeURIComponent(chat.id)}`, { method: "PUT", body });
  return (await response.json()) as ChatHead;
}

export async function patchChat(id: string, facts: ChatFacts): Promise<void> {
  await call(`extras/chats/${encodeURIComponent(id)}`, { method: "PATCH", body: JSON.stringify(facts) });
}

export async function deleteChat(id: string): Promise<void> {
  await unlessGone(call(`extras/chats/${encodeURIComponent(id)}`, { method: "DELETE" }));
}

/** Whether it is there again. */
export async function restoreChat(id: string): Promise<boolean> {
  return (await unlessGone(postJson(`extras/chats/${encodeURIComponent(id)}/restore`, {}))) !== null;
}

export async function exportChats(): Promise<string> {
  const chats: unknown[] = [];
  for (let before: number | null = null, more = true; more; more = before !== null) {
    const path: string = before === null ? "extras/chats/export" : `extras/chats/export?before=${before}`;
    const page: { chats: unknown[]; before: number | null } = await getJson(path);
    chats.push(...page.chats);
    before = page.before;
  }
  return JSON.stringify({ chats });
}

/**
 * Adds the chats of a file, or only reads them, piece by piece, since requests have a limit. Throws an Error for a file of
 * another kind.
 */
export async function importChats(text: string, store: boolean): Promise<Imported> {
  const sum: Imported = { added: 0, present: 0, refused: [], chats: [] };
  for (const piece of pieces(chatsIn(text))) {
    const { added, present, refused, chats } = await postJson<Imported>(`extras/chats/import?store=${store}`, { chats: piece });
    sum.added += added;
    sum.present += present;
    sum.refused.push(...refused);
    sum.chats.push(...chats);
  }
  return sum;
}

function chatsIn(text: string): unknown[] {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  const items = (read as { chats?: unknown } | null)?.chats ?? read;
  return Array.isArray(items) ? items : [items];
}

function* pieces(chats: unknown[]): Generator<unknown[]> {
  let piece: unknown[] = [];
  let chars = 0;
  for (const chat of chats) {
    const size = JSON.stringify(chat).length;
    if (piece.length > 0 && chars + size > PIECE_CHARS) {
      yield piece;
      [piece, chars] = [[], 0];
    }
    piece.push(chat);
    chars += size;
  }
  if (piece.length > 0) yield piece;
}

async function unlessGone<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}
