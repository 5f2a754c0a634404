// The requests of the server. Each opens into lanes of time and the causes of it.
import { useEffect, useState } from "preact/hooks";
import { messageOf, wasAborted } from "../api/http";
import { exportRequests, listRequests, readWhy, type RequestLine, type Why } from "../api/requests";
import { download } from "../state/export";
import { percent, rate } from "../ui/format";
import { say } from "../ui/notice";
import { usePolled } from "../ui/polled";
import { Words } from "../ui/words";
import { RenderedPrompt } from "./rendered_prompt";

const EVERY_MS = 2_000;
const LANES = ["load", "template", "compile", "media", "growth", "restart", "queue", "reading", "writing"];
const WIDTH = 600;

export function Requests() {
  // A proxy does not know them.
  const { value: lines } = usePolled(listRequests, () => EVERY_MS);
  const [chosen, setChosen] = useState<string | null>(null);
  if (lines === null) return null;
  return (
    <section aria-label="Requests">
      <div class="section-head">
        <h2>Requests</h2>
        {lines.length > 0 && (
          <button type="button" class="quiet" onClick={() => void save()}>
            Download as JSON
          </button>
        )}
      </div>
      {lines.length === 0 ? (
        <p class="hint">No request has asked a model yet.</p>
      ) : (
        <div class="table-box" tabIndex={0} role="group" aria-label="Table of requests">
          <table class="requests">
            <thead>
              <tr>
                {["request", "model", "state", "prompt", "cached", "first token", "answer", "tokens/s", "program"].map((name) => (
                  <th key={name} scope="col">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {lines.map((line) => (
                <Line key={line.id} line={line} open={chosen === line.id} toggle={() => setChosen(chosen === line.id ? null : line.id)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {chosen !== null && <Explained key={chosen} id={chosen} />}
    </section>
  );
}

async function save(): Promise<void> {
  try {
    download("requests.json", await exportRequests(), "application/json");
  } catch (error) {
    say(messageOf(error), true);
  }
}

function Line({ line, open, toggle }: { line: RequestLine; open: boolean; toggle: () => void }) {
  return (
    <tr>
      <td>
        <button type="button" aria-expanded={open} aria-label={`Why: ${line.id}`} onClick={toggle}>
          Why?
        </button>
      </td>
      <td>{line.model ?? ""}</td>
      <td>{line.error ?? line.state}</td>
      <td>{line.prompt_tokens || ""}</td>
      <td>{line.prompt_tokens ? percent(line.cached_tokens, line.prompt_tokens) : ""}</td>
      <td>{seconds(line.first_token_s)}</td>
      <td>{line.completion_tokens || ""}</td>
      <td>{line.tokens_per_second === null ? "" : rate(line.tokens_per_second)}</td>
      <td>{line.program}</td>
    </tr>
  );
}

function Explained({ id }: { id: string }) {
  const [why, setWhy] = useState<Why | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    setWhy(null);
    readWhy(id, controller.signal).then(setWhy, (error: unknown) => {
      if (!wasAborted(error)) setProblem(messageOf(error));
    });
    return () => controller.abort();
  }, [id]);
  if (problem !== null) return <p class="problem">{problem}</p>;
  if (why === null) return null;
  return (
    <section aria-label={`Request ${id}`}>
      <h3 class="breaks">
        {id} <span class="hint">{why.route}</span>
      </h3>
      <Lanes why={why} />
      {why.causes.length === 0 && <p class="hint">Nothing took longer than 0.02 s.</p>}
      <ul class="causes">
        {why.causes.map((cause) => (
          <li key={cause.code}>
            {seconds(cause.seconds)}: <Words text={cause.text} />.{" "}
            {cause.advice && (
              <span class="hint">
                <Words text={cause.advice} />
              </span>
            )}
          </li>
        ))}
      </ul>
      <RenderedPrompt id={id} />
    </section>
  );
}

/** One lane for each phase, one after the other as they happen. */
function Lanes({ why }: { why: Why }) {
  const lanes = LANES.filter((name) => (why.phases[name] ?? 0) >= 0.001);
  const total = lanes.reduce((sum, name) => sum + why.phases[name]!, 0) || 1;
  let from = 0;
  const text = lanes.map((name) => `${name} ${seconds(why.phases[name]!)}`).join(", ");
  return (
    <div class="lanes" role="img" aria-label={text}>
      {lanes.map((name) => {
        const x = (WIDTH * from) / total;
        const width = Math.max(2, (WIDTH * why.phases[name]!) / total);
        from += why.phases[name]!;
        return (
          <div class="lane" key={name}>
            <span>{name}</span>
            <span>{seconds(why.phases[name]!)}</span>
            <svg viewBox={`0 0 ${WIDTH} 1`} preserveAspectRatio="none" aria-hidden="true">
              <rect x={Math.min(x, WIDTH - width).toFixed(1)} width={width.toFixed(1)} height="1" />
            </svg>
          </div>
        );
      })}
    </div>
  );
}

function seconds(value: number | null): string {
  return value === null ? "" : `${value.toFixed(2)} s`;
}
