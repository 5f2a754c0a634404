// Versions of a conversation from a message on: what an edit or a new answer replaces stays, and can be shown again.
import type { Message } from "./conversation";

/** What a message needs that takes the place of the one at an index: its number, and what it replaces. */
export function replacing(messages: Message[], at: number): Pick<Message, "version" | "versions"> {
  const known = messages[at];
  if (known === undefined) return {};
  const versions = alternatives(messages, at);
  return { versions, version: Math.max(...versions.map(numberOf)) + 1 };
}

/** The conversation with another version of a message, and of all after it. */
export function withVersion(messages: Message[], id: string, version: number): Message[] {
  const at = messages.findIndex((message) => message.id === id);
  const chosen = messages[at]?.versions?.find((tail) => numberOf(tail) === version);
  if (chosen === undefined) return messages;
  const versions = alternatives(messages, at).filter((tail) => tail !== chosen);
  return [...messages.slice(0, at), { ...chosen[0]!, versions }, ...chosen.slice(1)];
}

/** The numbers of all versions of a message, in order, with its own. */
export function numbersOf(message: Message): number[] {
  return [message.version ?? 0, ...(message.versions ?? []).map(numberOf)].sort((one, other) => one - other);
}

/** Its other versions, and last the one that is shown, each with all that follows it. */
export function alternatives(messages: Message[], at: number): Message[][] {
  const { versions, ...head } = messages[at]!;
  return [...(versions ?? []), [head, ...messages.slice(at + 1)]];
}

export function numberOf(tail: Message[]): number {
  return tail[0]!.version ?? 0;
}
