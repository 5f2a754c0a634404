// What is typed and attached but not sent, by conversation: it stays with its conversation while another one is open.
import { signal } from "@preact/signals";
import type { Attachment } from "./conversation";

export interface Unsent {
  text: string;
  attached: Attachment[];
  /** The id of the question that the text replaces. */
  edited: string | null;
}

const NOTHING: Unsent = { text: "", attached: [], edited: null };

const all = signal<ReadonlyMap<string, Unsent>>(new Map());

export function unsentIn(conversation: string): Unsent {
  return all.value.get(conversation) ?? NOTHING;
}

export function changeUnsent(conversation: string, changes: Partial<Unsent>): void {
  all.value = new Map(all.value).set(conversation, { ...unsentIn(conversation), ...changes });
}

export function dropUnsent(conversation: string): void {
  const left = new Map(all.value);
  left.delete(conversation);
  all.value = left;
}
