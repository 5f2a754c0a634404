// Conversations on disk, in this browser only.
import { openDB, type DBSchema, type IDBPDatabase } from "idb";
import type { Conversation } from "./conversation";

interface Schema extends DBSchema {
  conversations: { key: string; value: Conversation };
}

let opened: Promise<IDBPDatabase<Schema>> | null = null;

function database(): Promise<IDBPDatabase<Schema>> {
  opened ??= openDB<Schema>("jan-serve", 1, {
    upgrade: (db) => void db.createObjectStore("conversations", { keyPath: "id" }),
    // Another tab with a newer page must not wait for this one.
    blocking: (_old, _new, event) => (event.target as IDBDatabase).close(),
  });
  return opened;
}

// Notifies other tabs of this page about writes.
const tabs = new BroadcastChannel("conversations");

/** Calls back with the id of each conversation that another tab wrote or deleted. */
export function onOtherTabs(changed: (id: string) => void): void {
  tabs.onmessage = (event: MessageEvent<string>) => changed(event.data);
}

export async function readConversation(id: string): Promise<Conversation | undefined> {
  return (await database()).get("conversations", id);
}

export async function readConversations(): Promise<Conversation[]> {
  return (await database()).getAll("conversations");
}

export async function writeConversation(conversation: Conversation): Promise<void> {
  await (await database()).put("conversations", conversation);
  tabs.postMessage(conversation.id);
}

export async function dropConversation(id: string): Promise<void> {
  await (await database()).delete("conversations", id);
  tabs.postMessage(id);
}
