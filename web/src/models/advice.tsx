// Three models for a purpose and this machine.
import { useEffect, useState } from "preact/hooks";
import { readAdvice, type Advice } from "../api/models";
import { messageOf, wasAborted } from "../api/http";
import { bytes } from "../ui/format";
import { SuggestedCards } from "./catalogue";

export function AdvisedModels() {
  const [purpose, setPurpose] = useState("");
  const { advice, problem } = useAdvice(purpose);
  if (problem !== null) return <p class="problem">{problem}</p>;
  if (advice === null) return <p class="hint">Finding out which models this machine can run…</p>;
  const { machine, purposes, data } = advice;
  return (
    <>
      <h2>Models to download</h2>
      <label class="purpose">
        A model for{" "}
        <select class="narrow" value={advice.purpose} onChange={(event) => setPurpose(event.currentTarget.value)}>
          {purposes.map(({ id, title }) => (
            <option key={id} value={id}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <SuggestedCards models={data} />
      <p class="hint">
        This machine has {bytes(machine.memory_bytes)} free for models, and its memory delivers {bytes(machine.bandwidth)}/s.
      </p>
    </>
  );
}

/** The last advice is shown until the next one is there. */
function useAdvice(purpose: string) {
  const [advice, setAdvice] = useState<Advice | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    readAdvice(purpose, controller.signal).then(setAdvice, (error: unknown) => {
      if (!wasAborted(error)) setProblem(messageOf(error));
    });
    return () => controller.abort();
  }, [purpose]);
  return { advice, problem };
}
