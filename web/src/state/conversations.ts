// All conversations, the open one, and the answers in progress.
import { computed, signal } from "@preact/signals";
import { isBrokenLine, streamChat } from "../api/chat";
import type { ChatNews, ChatRequest } from "../api/chat";
import type { ChatFacts } from "../api/chats";
import { ApiError, isMissing, messageOf, wasAborted } from "../api/http";
import { followResponse, streamResponse } from "../api/responses";
import { conversations, findChat, listThem, running, storageProblem, unlist } from "./chat_list";
import { chatRequest, newConversation, newMessage, titleOf, withEdit, withNews } from "./conversation";
import type { Attachment, ChatSettings, Conversation, Message } from "./conversation";
import { dropConversation, onOtherTabs, readConversation, readConversations, writeConversation } from "./database";
import { endedHere, mcpFunctions } from "./mcp";
import { currentModel, refreshModels } from "./models";
import { bringBack, changeFacts, connect, isDeleted, isReadAgain, isShared, mayBeShared, push, readWhole, refresh, remove } from "./sync";
import { offerUndo } from "./undo";
import { dropUnsent } from "./unsent";
import { replacing, withVersion } from "./versions";

const SAVE_MS = 1_000;
const LOOK_MS = 300;
/** Why the server does not go on with an answer without its page. */
const NO_JOURNAL = new Set(["unsupported_operation", "journal_unusable", "insufficient_storage", "store_error"]);
const GOES_ON = "The connection broke. The server goes on: open the chat again to see its answer.";

export const openId = signal("");

const draft = signal(newConversation());
const saves = new Map<string, number>();

export const open = computed(() => conversations.value.find(({ id }) => id === openId.value) ?? draft.value);
export const isAnswering = computed(() => running.value.has(open.value.id));

/** Reads the list anew: at the start, and with another key. */
export function loadConversations(): Promise<void> {
  // One after the other: an earlier list would replace a later one.
  loading = loading.then(load);
  void loading.then(isLoaded);
  return loading;
}

let loading = Promise.resolve();
let isLoaded!: () => void;

/** Until then it is not known whether the server keeps chats. */
export const loaded = new Promise<void>((resolve) => (isLoaded = resolve));

async function load(): Promise<void> {
  const known = new Set(conversations.value.map(({ id }) => id));
  let stored: Conversation[] = [];
  try {
    stored = await readConversations();
  } catch (error) {
    storageProblem.value = messageOf(error);
  }
  await connect(stored.filter(({ id }) => !known.has(id) || findChat(id)?.unsaved !== true));
  for (const { id, unsaved } of conversations.value) if (unsaved) void push(id);
  // An answer that was written meanwhile is in no copy that was read before.
  await readOpen();
}

onOtherTabs(async (id) => {
  // An answer in progress here is newer than the stored one.
  if (running.value.has(id) || saves.has(id)) return;
  const stored = await readConversation(id);
  if (stored) listThem([stored]);
  else unlist(id);
});

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  if (isShared.value) void refresh().then(readOpen, () => undefined); // the next try is soon
  else if (mayBeShared) void loadConversations();
});

/** The messages of the open chat, if only the server has them, and its answer, if that goes on. */
async function readOpen(): Promise<void> {
  try {
    await readWhole(openId.value);
    takeUp();
  } catch (error) {
    storageProblem.value = messageOf(error);
  }
}

export function openConversation(id: string): void {
  openId.value = id;
  void readOpen();
}

/** Opens the new chat: the one that nothing was asked in yet, with what is typed there, if there is one. */
export function startConversation(): void {
  const used = conversations.value.some(({ id }) => id === draft.value.id);
  // The system prompt and the tools are usually reused.
  draft.value = { ...(used ? newConversation() : draft.value), settings: open.value.settings };
  openId.value = draft.value.id;
}

/** Changes title, folder or pin. */
export function arrange(id: string, facts: ChatFacts): void {
  const conversation = findChat(id);
  if (conversation === undefined || Object.keys(facts).length === 0) return;
  if (isShared.value && conversation.stored) void changeFacts(id, facts);
  else {
    change(id, (known) => ({ ...known, ...facts }));
    saveNow();
  }
}

/** Deletes a chat, unless the user takes that back in time. */
export async function deleteConversation(id: string): Promise<void> {
  stop(id);
  const gone = findChat(id);
  if (gone === undefined) return;
  const isOnServer = isShared.value && gone.stored !== undefined;
  const deleted = Promise.all([leave(id), isOnServer ? remove(id) : undefined]);
  const takeBack = async () => {
    listThem([gone]);
    if (gone.partial !== true) saveSoon(id);
    saveNow();
    await deleted;
    if (isOnServer) await bringBack(gone);
    openConversation(id);
  };
  offerUndo({ text: `“${gone.title}” is deleted`, takeBack: () => void takeBack() });
  await deleted;
}

/** Takes a chat out of this page and this browser. */
async function leave(id: string): Promise<void> {
  unlist(id);
  dropUnsent(id);
  // An answer that is being stopped still writes to this id.
  if (draft.value.id === id) draft.value = { ...newConversation(), settings: draft.value.settings };
  if (openId.value === id) startConversation();
  window.clearTimeout(saves.get(id));
  saves.delete(id);
  await kept(dropConversation(id));
}

export function changeSettings(settings: Partial<ChatSettings>): void {
  change(open.value.id, (conversation) => ({ ...conversation, settings: { ...conversation.settings, ...settings } }));
}

/** Ask something new in the open conversation. */
export async function ask(text: string, attachments: Attachment[]): Promise<void> {
  const message: Message = newMessage("user", text);
  if (attachments.length > 0) message.attachments = attachments;
  await answer((messages) => [...messages, message]);
}

/** Answer a tool's calls: results by the id of the call, and the pictures of some. */
export async function giveResults(results: ReadonlyMap<string, string>, pictures: ReadonlyMap<string, Attachment[]> = new Map()): Promise<void> {
  const given = [...results].map(([callId, text]): Message => {
    const message: Message = { ...newMessage("tool", text), callId };
    const attachments = pictures.get(callId);
    return attachments?.length ? { ...message, attachments } : message;
  });
  await answer((messages) => [...messages, ...given]);
}

/** Generate an answer again. The old one, and all after it, becomes another version. */
export async function regenerate(id: string): Promise<void> {
  const { messages } = open.value;
  const at = indexOf(messages, id);
  await answer((known) => known.slice(0, at), replacing(messages, at));
}

/** Show another version of a message, with all that follows it. */
export function showVersion(id: string, version: number): void {
  if (isAnswering.value) return;
  change(open.value.id, (conversation) => ({ ...conversation, messages: withVersion(conversation.messages, id, version) }));
  saveNow();
  takeUp();
}

/** Change a question and answer it. The old one, and all after it, becomes another version. Attachments are added to those that it has. */
export async function edit(id: string, text: string, attachments: Attachment[] = []): Promise<void> {
  await answer((messages) => withEdit(messages, id, text, attachments));
}

export function stop(id: string = open.value.id): void {
  running.value.get(id)?.abort();
}

async function answer(prepare: (messages: Message[]) => Message[], versions: Partial<Message> = {}): Promise<void> {
  const { id, partial } = open.value;
  if (running.value.has(id)) return;
  if (partial) return readOpen();
  const model = currentModel.value?.id ?? "";
  const reply: Message = { ...newMessage("assistant", ""), model, ...versions };
  change(id, (conversation) => prepared(conversation, prepare));
  const asked = findChat(id)!;
  change(id, (conversation) => ({ ...conversation, messages: [...conversation.messages, reply] }));
  // By then the list shows whether the model has to load first.
  window.setTimeout(() => void refreshModels(), LOOK_MS);
  await receive(id, reply, async function* (signal) {
    const tools = asked.settings.mcp ? await mcpFunctions() : [];
    const request = chatRequest(asked, model, tools);
    await loaded;
    yield* isShared.value ? inBackground(request, signal) : streamChat(request, signal);
  });
}

/** As streamChat, and the server goes on without this page, unless it has no room for that. */
async function* inBackground(request: ChatRequest, signal: AbortSignal): AsyncGenerator<ChatNews> {
  try {
    yield* streamResponse(request, signal);
  } catch (error) {
    if (!(error instanceof ApiError && error.status >= 400 && NO_JOURNAL.has(error.code))) throw error;
    yield* streamChat(request, signal);
  }
}

/** Goes on with the answer of the open chat that the server writes. */
function takeUp(): void {
  const { id, messages, partial } = open.value;
  const waiting = messages.findLast(({ response }) => response !== undefined);
  if (waiting?.response === undefined || partial || running.value.has(id)) return;
  const { response, reasoning: _thought, calls: _calls, error: _error, ...asked } = waiting;
  void receive(id, { ...asked, response, text: "" }, (signal) => followResponse(response, signal));
}

async function receive(id: string, reply: Message, pieces: (signal: AbortSignal) => AsyncGenerator<ChatNews>): Promise<void> {
  const controller = new AbortController();
  running.value = new Map(running.value).set(id, controller);
  saveNow();
  let current = reply;
  let isGone = false;
  try {
    for await (const news of pieces(controller.signal)) {
      current = withNews(current, news);
      replace(id, current);
      // From here on the server finds the answer for the chat.
      if (news.response) void push(id);
    }
    endedHere.add(reply.id);
    replace(id, written(current));
    // Another page ended it, which may have deleted the chat.
    if (current.finish === "stopped") isGone = await isDeleted(id);
  } catch (error) {
    const onServer = current.response !== undefined;
    if (wasAborted(error)) replace(id, { ...written(current), finish: "stopped" });
    else if (onServer && isBrokenLine(error)) replace(id, { ...current, error: GOES_ON });
    else if (onServer && isMissing(error) && findChat(id)?.stored) isGone = !(await isReadAgain(id));
    else replace(id, { ...written(current), error: messageOf(error) });
  } finally {
    const left = new Map(running.value);
    left.delete(id);
    running.value = left;
    if (isGone) await leave(id);
    saveNow();
    void push(id);
    void refreshModels();
  }
}

function prepared(conversation: Conversation, prepare: (messages: Message[]) => Message[]): Conversation {
  const messages = prepare(conversation.messages);
  const first = messages.find(({ role }) => role === "user");
  const untitled = conversation.messages.length === 0 && conversation.title === "New chat";
  return { ...conversation, messages, title: untitled && first ? titleOf(first.text || (first.attachments?.[0]?.name ?? "")) : conversation.title };
}

function indexOf(messages: Message[], id: string): number {
  const at = messages.findIndex((message) => message.id === id);
  return at < 0 ? messages.length : at;
}

function replace(id: string, message: Message): void {
  change(id, (conversation) => ({
    ...conversation,
    messages: conversation.messages.map((known) => (known.id === message.id ? message : known)),
  }));
}

/** The message without the answer that it waited for. */
function written({ response: _, ...message }: Message): Message {
  return message;
}

function change(id: string, how: (conversation: Conversation) => Conversation): void {
  const known = findChat(id);
  if (known === undefined && id !== draft.value.id) return;
  if (known?.partial) return;
  const changed = { ...how(known ?? draft.value), updated: Date.now(), unsaved: true };
  if (known === undefined && changed.messages.length === 0) {
    draft.value = changed; // an empty chat is not listed
    return;
  }
  openId.value ||= id;
  conversations.value = [changed, ...conversations.value.filter((conversation) => conversation.id !== id)];
  saveSoon(id);
}

function saveSoon(id: string): void {
  if (saves.has(id)) return;
  const save = () => {
    saves.delete(id);
    write(id);
    if (!running.value.has(id)) void push(id);
  };
  saves.set(id, window.setTimeout(save, SAVE_MS));
}

/** Writes pending changes at once: the page may close at any moment. */
export function saveNow(): void {
  for (const [id, timer] of saves) {
    window.clearTimeout(timer);
    write(id);
    void push(id);
  }
  saves.clear();
}

function write(id: string): void {
  const conversation = findChat(id);
  if (conversation) void kept(writeConversation(conversation));
}

async function kept(work: Promise<void>): Promise<void> {
  try {
    await work;
    if (!isShared.value) storageProblem.value = null;
  } catch (error) {
    storageProblem.value = messageOf(error);
  }
}
