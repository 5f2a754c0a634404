// The prompt of a request as the model reads it. What came from the cache is shaded.
import { useEffect, useState } from "preact/hooks";
import { ApiError, messageOf, wasAborted } from "../api/http";
import { readPrompts, type Prompts } from "../api/requests";

const KEEP = "Prompts are not kept. With the setting keep_prompts = 20, for example, those of the last 20 requests are, in memory.";

export function RenderedPrompt({ id }: { id: string }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="shown-prompt" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Prompt</summary>
      {open && <Loaded id={id} />}
    </details>
  );
}

function Loaded({ id }: { id: string }) {
  const [found, setFound] = useState<Prompts | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    readPrompts(id, controller.signal).then(setFound, (error: unknown) => {
      if (wasAborted(error)) return;
      setProblem(error instanceof ApiError && error.code === "prompt_not_kept" ? KEEP : messageOf(error));
    });
    return () => controller.abort();
  }, [id]);
  if (problem !== null) return <p class="hint">{problem}</p>;
  return (
    <>
      {found?.prompts.some(({ cached_characters }) => cached_characters) && <p class="hint">The shaded part came from the cache.</p>}
      {found?.prompts.map(({ text, cached_characters }, index) => {
        // The server counts characters of Unicode, not of UTF-16.
        const characters = [...text];
        const cached = cached_characters ?? 0;
        return (
          <pre key={index} class="code-box" tabIndex={0} aria-label={`Prompt ${index + 1}`}>
            {cached > 0 && <mark>{characters.slice(0, cached).join("")}</mark>}
            {characters.slice(cached).join("")}
          </pre>
        );
      })}
    </>
  );
}
