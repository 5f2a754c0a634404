// Light, dark, or the system's choice.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const NAME = "theme";
const stored = localStorage.getItem(NAME);

export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

effect(() => {
  const chosen = theme.value;
  if (chosen === "system") {
    localStorage.removeItem(NAME);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(NAME, chosen);
    document.documentElement.dataset.theme = chosen;
  }
});

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function nextTheme(): void {
  theme.value = NEXT[theme.value];
}
