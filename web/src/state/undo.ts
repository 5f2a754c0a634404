// Deletions that can be taken back for a while.
import { signal } from "@preact/signals";

const GRACE_MS = 8_000;

interface Deletion {
  text: string;
  takeBack: () => void;
  /** Deletes what cannot be brought back: a little later, or when the page closes. */
  commit?: () => void;
}

/** The last one, while it can be taken back. */
export const deletion = signal<Deletion | null>(null);

let timer = 0;

/** Announces a deletion that the view shows already. */
export function offerUndo(last: Deletion): void {
  commitNow();
  deletion.value = last;
  timer = window.setTimeout(commitNow, GRACE_MS);
}

export function undo(): void {
  taken()?.takeBack();
}

export function commitNow(): void {
  taken()?.commit?.();
}

function taken(): Deletion | null {
  const last = deletion.value;
  window.clearTimeout(timer);
  deletion.value = null;
  return last;
}
