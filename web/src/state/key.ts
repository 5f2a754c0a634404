// The API key: for this tab, or stored on this device if the user chooses so.
import { signal } from "@preact/signals";

const NAME = "api-key";

export const apiKey = signal(sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "");

/** Whether the page has to ask for a key: a call was rejected with 401. */
export const keyIsAsked = signal(false);

/** Increases with each new key, so that views reload. */
export const keyEpoch = signal(0);

export function askForKey(): void {
  keyIsAsked.value = true;
}

export function useKey(key: string, keep: boolean): void {
  forgetKey();
  (keep ? localStorage : sessionStorage).setItem(NAME, key);
  apiKey.value = key;
  keyIsAsked.value = false;
  keyEpoch.value += 1;
}

export function forgetKey(): void {
  localStorage.removeItem(NAME);
  sessionStorage.removeItem(NAME);
  apiKey.value = "";
}
