// Chats on the server. The browser's copies are what is written there, and what stays if it cannot be written.
import { signal } from "@preact/signals";
import { deleteChat, getChat, listChats, patchChat, putChat, restoreChat } from "../api/chats";
import type { ChatFacts, ChatHead, StoredChat } from "../api/chats";
import { ApiError, isMissing, messageOf } from "../api/http";
import { conversations, findChat, listThem, running, storageProblem, unlist } from "./chat_list";
import { isProxy } from "./fleet";
import { newConversation, type Conversation } from "./conversation";
import { writeConversation } from "./database";
import { mergedMessages, mergedSettings } from "./merge";

const LISTED = 100;
const TRIES = 5;

/** Whether the server keeps chats. Otherwise they stay in this browser. */
export const isShared = signal(false);

/** Names the next page of the list. */
export const older = signal<number | null>(null);

/** Whether the server may keep chats: a proxy has no such route. */
export let mayBeShared = true;

let store = "";
/** The chats that are being written, and those of them that have changed meanwhile. */
const writing = new Set<string>();
const waiting = new Set<string>();
/** The chats as the server had them when they were last read or written here. */
const bases = new Map<string, Conversation>();

/** Lists the chats of the server, beside the copies that it has not got. Without such a server, all copies. */
export async function connect(copies: Conversation[]): Promise<void> {
  mayBeShared = !isProxy.value;
  if (!mayBeShared) return listThem(copies);
  try {
    const [pinned, latest] = await Promise.all([listChats({ pinned: true, limit: LISTED }), listChats({ pinned: false, limit: LISTED })]);
    mayBeShared = latest.store !== null;
    if (latest.store === null) return listThem(copies);
    store = latest.store;
    older.value = latest.before;
    isShared.value = true;
    // Those of another key are for it alone.
    conversations.value = conversations.value.filter(({ id, unsaved }) => unsaved === true || isBusy(id));
    const known = new Map(copies.map((copy) => [copy.id, copy]));
    const unsent = copies.filter(isUnsent).map(asUnsent);
    take([...pinned.data, ...latest.data], known);
    listThem(unsent.filter(({ id }) => findChat(id)?.unsaved !== true));
    for (const { id } of unsent) void push(id);
  } catch (error) {
    isShared.value = false;
    listThem(copies);
    const isAway = error instanceof ApiError && [0, 401].includes(error.status);
    if (!isAway) storageProblem.value = messageOf(error);
  }
}

/** Reads what others have changed meanwhile. */
export async function refresh(): Promise<void> {
  if (!isShared.value) return;
  const { data, before } = await listChats({ limit: LISTED });
  const there = new Map(data.map((head) => [head.id, head]));
  const oldest = before === null ? 0 : (data.at(-1)?.updated ?? 0);
  for (const { id, updated, stored, unsaved } of conversations.value) {
    if (stored && !unsaved && !isBusy(id) && updated > oldest && !there.has(id)) unlist(id);
    if (unsaved) void push(id);
  }
  take(data, new Map(conversations.value.map((chat) => [chat.id, chat])));
}

/** Adds the next page to the list. */
export async function listOlder(): Promise<void> {
  if (older.value === null) return;
  const page = await listChats({ pinned: false, limit: LISTED, before: older.value });
  older.value = page.before;
  take(page.data, new Map());
}

/** Lists what the server has, with the messages of the copies that are as new. */
export function take(heads: ChatHead[], copies: ReadonlyMap<string, Conversation>): void {
  const fresh = heads.filter(({ id }) => !isBusy(id) && findChat(id)?.unsaved !== true);
  listThem(fresh.map((head) => headed(head, copies.get(head.id))));
}

/** Reads the messages of a chat, unless they are here. */
export async function readWhole(id: string): Promise<void> {
  if (!findChat(id)?.partial) return;
  const chat = conversationOf(await getChat(id));
  if (findChat(id)?.partial) await keep(chat);
}

/** Whether another page has deleted a chat of the server. */
export async function isDeleted(id: string): Promise<boolean> {
  if (!isShared.value || !findChat(id)?.stored) return false;
  return getChat(id).then(() => false, isMissing);
}

/** Reads a chat anew from the server: another page has written what this one missed. False if it is not there. */
export async function isReadAgain(id: string): Promise<boolean> {
  try {
    await keep(conversationOf(await getChat(id)));
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    storageProblem.value = messageOf(error);
    return true;
  }
}

/** Writes what has changed. Where another page has written meanwhile, what both have. */
export async function push(id: string): Promise<void> {
  if (!isShared.value) return;
  if (writing.has(id)) return void waiting.add(id);
  writing.add(id);
  try {
    for (let tries = 0; tries < TRIES; tries++) {
      const mine = findChat(id);
      if (mine === undefined || !mine.unsaved || mine.partial) return;
      if (await isWritten(mine)) return;
    }
  } catch (error) {
    storageProblem.value = `the server does not take them: ${messageOf(error)}`;
  } finally {
    writing.delete(id);
    if (waiting.delete(id)) void push(id);
  }
}

async function isWritten(mine: Conversation): Promise<boolean> {
  const { id } = mine;
  try {
    const { version } = await putChat(mine, mine.stored?.version ?? 0);
    bases.set(id, mine);
    storageProblem.value = null;
    const now = findChat(id);
    if (now !== undefined) await keep({ ...now, stored: { store, version }, unsaved: now !== mine });
    // What an answer adds is written at its end.
    return now === mine || now === undefined || running.value.has(id);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 409) throw error;
    if (error.code === "chat_deleted" && !asksMore(mine)) {
      unlist(id);
      return true;
    }
    await joinWith(id, error.code === "chat_deleted" ? await restored(id) : conversationOf(await getChat(id), false));
    return false;
  }
}

/** Whether it has a question that the server has not seen: the end of an answer brings no deleted chat back. */
function asksMore({ id, messages }: Conversation): boolean {
  const known = bases.get(id)?.messages;
  return known === undefined || messages.some((message) => message.role === "user" && !known.some((each) => each.id === message.id));
}

/** What is asked in a chat that another page has deleted brings it back. null: it is gone. */
async function restored(id: string): Promise<Conversation | null> {
  if (findChat(id) === undefined || !(await restoreChat(id))) return null;
  return conversationOf(await getChat(id), false);
}

async function joinWith(id: string, theirs: Conversation | null): Promise<void> {
  const mine = findChat(id);
  if (mine === undefined) return;
  if (theirs === null) {
    const { stored: _, ...unknown } = mine;
    return keep(unknown);
  }
  const settings = mergedSettings(bases.get(id)?.settings, mine.settings, theirs.settings);
  const messages = mergedMessages(mine.messages, theirs.messages);
  bases.set(id, theirs);
  await keep({ ...mine, ...facts(theirs), stored: theirs.stored!, settings, messages, unsaved: true });
}

/** Changes title, folder or pin on the server. */
export async function changeFacts(id: string, changed: ChatFacts): Promise<void> {
  const chat = findChat(id);
  if (chat === undefined) return;
  if (chat.partial) listThem([{ ...chat, ...changed }]);
  else await keep({ ...chat, ...changed });
  await tried(patchChat(id, changed));
}

export async function remove(id: string): Promise<void> {
  await tried(deleteChat(id));
}

/** Takes a deletion back. */
export async function bringBack(chat: Conversation): Promise<void> {
  const isThere = await tried(restoreChat(chat.id));
  if (isThere === false) {
    await keep(asUnsent({ ...chat, unsaved: true }));
    await push(chat.id);
  }
}

async function tried<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    storageProblem.value = `the server does not take them: ${messageOf(error)}`;
    return undefined;
  }
}

/** In the list and in this browser. */
async function keep(chat: Conversation): Promise<void> {
  listThem([chat]);
  await writeConversation(chat).catch(() => undefined); // the server has it, or its own error is shown
}

/** Whether the server has not got it, or has lost it with its whole file. */
function isUnsent({ stored, unsaved }: Conversation): boolean {
  if (stored === undefined) return true;
  const [owner] = stored.store.split(".");
  return stored.store === store ? unsaved === true : owner === store.split(".")[0];
}

function asUnsent(chat: Conversation): Conversation {
  if (chat.stored?.store === store && chat.unsaved && chat.partial !== true) return chat;
  const { stored: _, ...unknown } = chat;
  return { ...unknown, unsaved: true };
}

function isBusy(id: string): boolean {
  return running.value.has(id) || writing.has(id);
}

function headed(head: ChatHead, copy: Conversation | undefined): Conversation {
  const { id, version } = head;
  const isCurrent = copy !== undefined && !copy.partial && copy.stored?.store === store && copy.stored.version === version;
  if (isCurrent && !copy.unsaved) bases.set(id, copy);
  if (isCurrent) return { ...copy, ...facts(head) };
  // What the page has is shown until the rest is read.
  return { ...(copy ?? newConversation()), ...facts(head), id, stored: { store, version }, partial: true };
}

function conversationOf(chat: StoredChat, isBase = true): Conversation {
  const { id, version, settings, messages } = chat;
  const read: Conversation = { id, ...facts(chat), settings, messages, stored: { store, version }, unsaved: false };
  if (isBase) bases.set(id, read);
  return read;
}

function facts({ title, folder, pinned, updated }: Pick<Conversation, "title" | "folder" | "pinned" | "updated">) {
  return { title, folder: folder ?? "", pinned: pinned ?? false, updated };
}
