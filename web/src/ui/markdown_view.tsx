// Shows Markdown that may still grow.
import { useEffect, useRef } from "preact/hooks";
import { copyText } from "./copy";
import { renderMarkdown } from "./markdown";

// Rendering the whole text for every token would cost more than the tokens themselves.
const PAUSE_MS = 80;

export function MarkdownView({ text }: { text: string }) {
  const box = useRef<HTMLDivElement>(null);
  const last = useRef(0);

  useEffect(() => {
    const show = () => {
      last.current = performance.now();
      box.current?.replaceChildren(renderMarkdown(text));
    };
    const pause = last.current + PAUSE_MS - performance.now();
    if (pause <= 0) {
      show();
      return undefined;
    }
    const timer = window.setTimeout(show, pause);
    return () => window.clearTimeout(timer);
  }, [text]);

  const copyCode = (event: MouseEvent) => {
    const button = event.target instanceof Element ? event.target.closest("button.copy-code") : null;
    const code = button?.closest(".code-block")?.querySelector("code");
    if (button && code) void copyText(code.textContent ?? "");
  };
  return <div class="markdown" ref={box} onClick={copyCode} />;
}
