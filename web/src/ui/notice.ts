// One short line about a result or an error, which screen readers read aloud.
import { signal } from "@preact/signals";

const SHOWN_MS = 4_000;

export interface Notice {
  text: string;
  bad: boolean;
}

export const notice = signal<Notice | null>(null);

let timer = 0;

export function say(text: string, bad = false): void {
  notice.value = { text, bad };
  window.clearTimeout(timer);
  timer = window.setTimeout(() => (notice.value = null), SHOWN_MS);
}
