// Import and export of all chats: of the server, or of this browser if the server keeps none.
import { exportChats, importChats } from "../api/chats";
import type { Imported } from "../api/chats";
import { conversations, findChat, listThem } from "./chat_list";
import { loadConversations, loaded } from "./conversations";
import { writeConversation } from "./database";
import { isShared } from "./sync";

/** The text of a file that `importAll` reads. */
export async function exportAll(): Promise<string> {
  await loaded;
  if (isShared.value) return exportChats();
  const chats = conversations.value.map(({ id, title, folder, pinned, updated, settings, messages }) => ({ id, title, folder, pinned, updated, settings, messages }));
  return JSON.stringify({ chats });
}

/** Adds the chats of a file that are not here. Throws an Error for a file of another kind. */
export async function importAll(text: string): Promise<Imported> {
  await loaded;
  const read = await importChats(text, isShared.value);
  if (isShared.value) {
    await loadConversations();
    return read;
  }
  const fresh = read.chats.filter(({ id }) => findChat(id) === undefined);
  for (const { id, title, folder, pinned, updated, settings, messages } of fresh) {
    const chat = { id, title, folder, pinned, updated: updated ?? Date.now(), settings, messages };
    await writeConversation(chat);
    listThem([chat]);
  }
  return { ...read, added: fresh.length, present: read.chats.length - fresh.length };
}
