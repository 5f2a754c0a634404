// A decision: the probability of each option, read from the model instead of written by it.
import { useState } from "preact/hooks";
import { messageOf, postJson, wasAborted } from "../api/http";
import { currentModel } from "../state/models";

interface Answer {
  mass: number;
  options: { option: string; probability: number }[];
}

/** Probability of all options together, below which their shares say little. */
const UNRELIABLE = 0.01;

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

export function Options() {
  const [state, setState] = useState("My parcel is late, and I want my money back.");
  const [question, setQuestion] = useState("Which team answers this?");
  const [names, setNames] = useState("billing, shipping, sales");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [controller, setController] = useState<AbortController | null>(null);

  const decide = async (event: SubmitEvent) => {
    event.preventDefault();
    const started = new AbortController();
    setController(started);
    setAnswer(null);
    setProblem(null);
    const options = names.split(",").map((name) => name.trim()).filter(Boolean);
    try {
      const body = { model: currentModel.value?.id ?? null, state, questions: { asked: { question, options } } };
      const reply = await postJson<{ answers: { asked: Answer } }>("v1/decide", body, started.signal);
      setAnswer(reply.answers.asked);
    } catch (error) {
      if (!wasAborted(error)) setProblem(messageOf(error));
    } finally {
      setController(null);
    }
  };
  return (
    <section aria-labelledby="options-title">
      <h2 id="options-title">Options</h2>
      <p class="hint">The model chooses among options. Nothing is written: the probability of each option is read from it.</p>
      <form onSubmit={decide}>
        <label>
          Text
          <textarea value={state} onInput={(event) => setState(event.currentTarget.value)} />
        </label>
        <label>
          What is asked about it
          <input value={question} onInput={(event) => setQuestion(event.currentTarget.value)} required />
        </label>
        <div class="row">
          <label class="fill">
            Options, with commas between them
            <input value={names} onInput={(event) => setNames(event.currentTarget.value)} required />
          </label>
          {controller === null ? (
            <button type="submit" class="primary">
              Decide
            </button>
          ) : (
            <button type="button" onClick={() => controller.abort()}>
              Stop
            </button>
          )}
        </div>
      </form>
      {answer && (
        <ul class="shares" aria-label="Probabilities">
          {answer.options.map(({ option, probability }) => (
            <li key={option}>
              <span>{option}</span>
              <progress max={1} value={probability} aria-label={option} />
              <span>{percent(probability)}</span>
            </li>
          ))}
        </ul>
      )}
      {answer &&
        (answer.mass < UNRELIABLE ? (
          <p class="problem">Not reliable: on its own the model would almost never give one of these answers.</p>
        ) : (
          <p class="hint">The model would write one of them with probability {percent(answer.mass)}.</p>
        ))}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}
