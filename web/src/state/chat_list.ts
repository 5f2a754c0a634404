// The conversations that the page has, and which of them are being answered.
import { signal } from "@preact/signals";
import type { Conversation } from "./conversation";

/** Most recently changed first. */
export const conversations = signal<Conversation[]>([]);

/** The reason why this browser, or the server, cannot store chats, if it cannot. */
export const storageProblem = signal<string | null>(null);

export const running = signal<ReadonlyMap<string, AbortController>>(new Map());

export function findChat(id: string): Conversation | undefined {
  return conversations.value.find((conversation) => conversation.id === id);
}

/** Puts conversations into the list, in place of those with the same ids. */
export function listThem(changed: Conversation[]): void {
  const ids = new Set(changed.map(({ id }) => id));
  conversations.value = [...changed, ...conversations.value.filter(({ id }) => !ids.has(id))].sort((one, other) => other.updated - one.updated);
}

export function unlist(id: string): void {
  conversations.value = conversations.value.filter((conversation) => conversation.id !== id);
}
