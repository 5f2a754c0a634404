// The grammar of a constraint, and the model's text under it.
import { useEffect, useState } from "preact/hooks";
import { streamChat } from "../api/chat";
import { messageOf, postJson, wasAborted } from "../api/http";
import { ModelChoice } from "../models/model_choice";
import { currentModel } from "../state/models";
import { CopyButton } from "../ui/copy";
import { EXAMPLES, fieldsOf, fits, KINDS, type Kind, type Verdict } from "./constraint";
import { Options } from "./options";

const PAUSE_MS = 300;
const CUT: Verdict = { good: false, words: "Cut off at the limit of tokens: only the beginning of a valid text." };

interface Translated {
  gbnf: string;
  problem: string | null;
  explained: Explanation | null;
}

/** What a schema costs, or which keyword to change. */
interface Explanation {
  compiles: boolean;
  lines: string[];
}

export function PlaygroundView() {
  const [kind, setKind] = useState<Kind>("schema");
  const [texts, setTexts] = useState(EXAMPLES);
  const text = texts[kind];
  const { gbnf, problem, explained } = useTranslation(kind, text);
  return (
    <div class="panel">
      <h1>Constraint playground</h1>
      <p class="hint">Enter a constraint for the answer. It is enforced exactly, token by token, or rejected with the place and the reason.</p>
      <fieldset class="kinds">
        <legend class="off-screen">Kind of constraint</legend>
        {KINDS.map(({ name, title }) => (
          <label key={name} class={kind === name ? "chosen" : ""}>
            <input type="radio" name="kind" checked={kind === name} onChange={() => setKind(name)} /> {title}
          </label>
        ))}
      </fieldset>
      <div class="columns">
        <label>
          {KINDS.find(({ name }) => name === kind)!.title}
          <textarea class="code tall" spellcheck={false} value={text} aria-invalid={problem !== null} onInput={(event) => setTexts({ ...texts, [kind]: event.currentTarget.value })} />
        </label>
        <section aria-label="Its grammar">
          <div class="label-row">
            <span>GBNF</span>
            {gbnf && <CopyButton text={gbnf} label="Copy grammar" />}
          </div>
          {problem !== null ? (
            <p class="problem" role="alert">
              {problem}
            </p>
          ) : (
            <pre class="code-box" tabIndex={0}>
              {gbnf}
            </pre>
          )}
          {explained && (
            <details open={!explained.compiles}>
              <summary>Details</summary>
              <ul class="hint" aria-label="Explanation">
                {explained.lines.filter((line) => problem === null || !line.includes(problem)).map((line) => (
                  <li key={line}>{line}</li>
                ))}
              </ul>
            </details>
          )}
        </section>
      </div>
      <Trial kind={kind} text={text} ready={gbnf !== "" || explained?.compiles === true} />
      <Options />
    </div>
  );
}

/** The grammar of the text, shortly after the last keystroke. */
function useTranslation(kind: Kind, text: string): Translated {
  const [result, setResult] = useState<Translated>({ gbnf: "", problem: null, explained: null });
  useEffect(() => {
    const controller = new AbortController();
    const timer = window.setTimeout(async () => {
      let gbnf = "";
      let problem: string | null = null;
      let isJson = kind === "schema";
      try {
        gbnf = (await postJson<{ grammar: string }>("extras/grammar", fieldsOf(kind, text), controller.signal)).grammar;
      } catch (error) {
        if (wasAborted(error)) return;
        problem = messageOf(error);
        isJson = isJson && !(error instanceof SyntaxError);
      }
      setResult({ gbnf, problem, explained: null });
      const explained = isJson ? await explanationOf(text, controller.signal) : null;
      if (explained) setResult({ gbnf, problem, explained });
    }, PAUSE_MS);
    return () => {
      window.clearTimeout(timer);
      controller.abort();
    };
  }, [kind, text]);
  return result;
}

/** Null where there is none, as for what is no schema at all. */
async function explanationOf(text: string, signal: AbortSignal): Promise<Explanation | null> {
  try {
    return await postJson<Explanation>("extras/grammar/explain", fieldsOf("schema", text), signal);
  } catch {
    return null; // the grammar, or the reason for the refusal, is shown already
  }
}

function Trial({ kind, text, ready }: { kind: Kind; text: string; ready: boolean }) {
  const [question, setQuestion] = useState("Invent a person.");
  const [answer, setAnswer] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [controller, setController] = useState<AbortController | null>(null);

  useEffect(() => {
    // What was written followed another constraint.
    setAnswer("");
    setVerdict(null);
  }, [kind, text]);

  const run = async (event: SubmitEvent) => {
    event.preventDefault();
    const started = new AbortController();
    setController(started);
    setAnswer("");
    setProblem(null);
    setVerdict(null);
    let written = "";
    let finish = "";
    try {
      const request = { model: currentModel.value?.id ?? "", messages: [{ role: "user" as const, content: question }], max_tokens: 1024, ...fieldsOf(kind, text) };
      for await (const news of streamChat(request, started.signal)) {
        written += news.text ?? "";
        finish = news.finish ?? finish;
        setAnswer(written);
      }
      setVerdict(finish === "length" ? CUT : fits(kind, text, written));
    } catch (error) {
      if (!wasAborted(error)) setProblem(messageOf(error));
    } finally {
      setController(null);
    }
  };
  return (
    <section aria-label="Try it">
      <form class="row" onSubmit={run}>
        <ModelChoice />
        <label class="fill">
          <span class="off-screen">Question</span>
          <input value={question} onInput={(event) => setQuestion(event.currentTarget.value)} required />
        </label>
        {controller === null ? (
          <button type="submit" class="primary" disabled={!ready}>
            Generate
          </button>
        ) : (
          <button type="button" onClick={() => controller.abort()}>
            Stop
          </button>
        )}
      </form>
      {(answer || controller) && (
        <pre class="code-box" aria-label="Generated text" tabIndex={0}>
          {answer}
        </pre>
      )}
      {verdict && <p class={`verdict${verdict.good ? "" : " bad"}`}>{verdict.words}</p>}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}
