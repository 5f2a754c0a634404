import { Dialog } from "./dialog";

const SHORTCUTS: [string, string][] = [
  ["Enter", "Send"],
  ["Shift + Enter", "New line"],
  ["Escape", "Stop the answer"],
  ["↑ in an empty question", "Edit the last question"],
  ["/", "Go to the question"],
  ["Alt + N", "New chat"],
  ["Alt + 1 … 5", "The views, from the top"],
  ["?", "This list"],
];

export function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="shortcuts">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog" class="actions">
        <button>Close</button>
      </form>
    </Dialog>
  );
}
