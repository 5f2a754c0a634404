// Whether the page comes from a proxy, which has nodes and no models of its own.
import { computed, signal } from "@preact/signals";
import { readHealth } from "../api/server";
import { VIEWS, type View } from "./view";

export const isProxy = signal(false);

const OF_A_PROXY: readonly View[] = ["chat", "nodes"];

/** The views that this address has something for. */
export const views = computed(() => VIEWS.filter((name) => (isProxy.value ? OF_A_PROXY.includes(name) : name !== "nodes")));

/** Asks once. A server that does not answer now is shown as an ordinary one. */
export async function detectProxy(): Promise<void> {
  const health = await readHealth().catch(() => null);
  isProxy.value = health?.nodes !== undefined;
}
