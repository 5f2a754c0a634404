// Copying to the clipboard.
import { say } from "./notice";

/** Reports success or failure: without a secure context (plain HTTP from another machine) there is no clipboard API. */
export async function copyText(text: string): Promise<void> {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text);
    say("Copied");
  } catch {
    say("The browser did not allow copying", true);
  }
}

function copyBySelection(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "off-screen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("refused");
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  return (
    <button type="button" class="quiet" aria-label={label} onClick={() => void copyText(text)}>
      Copy
    </button>
  );
}
