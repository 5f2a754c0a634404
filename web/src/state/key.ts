// The API key: for this tab, or kept on this device when the user wants that.
import { signal } from "@preact/signals";

const NAME = "api-key";

export const apiKey = signal(sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "");

/** Whether the page has to ask: a call was refused for want of the right key. */
export const keyIsAsked = signal(false);

/** Grows with each new key: views load again. */
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
