// Which view is shown: the fragment of the address, so that reload, back and forward work.
import { signal } from "@preact/signals";

export const VIEWS = ["chat", "models", "playground", "batches", "server", "nodes"] as const;
export type View = (typeof VIEWS)[number];

function named(): View {
  const name = location.hash.slice(1);
  return VIEWS.find((known) => known === name) ?? "chat";
}

export const view = signal<View>(named());

window.addEventListener("hashchange", () => (view.value = named()));

export function goTo(name: View): void {
  location.hash = name;
}
