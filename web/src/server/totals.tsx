// What was asked on the last days, by model and program.
import { listTotals } from "../api/requests";
import { percent } from "../ui/format";
import { usePolled } from "../ui/polled";

const EVERY_MS = 60_000;

export function Totals() {
  const { value: totals } = usePolled(listTotals, () => EVERY_MS);
  if (!totals?.length) return null;
  return (
    <section aria-label="Tokens a day">
      <h2>Tokens a day</h2>
      <div class="table-box" tabIndex={0} role="group" aria-label="Table of days">
        <table class="requests">
          <thead>
            <tr>
              {["day", "model", "program", "requests", "prompt", "cached", "answer"].map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {totals.map((line) => (
              <tr key={`${line.day} ${line.model} ${line.program}`}>
                <td>{line.day}</td>
                <td>{line.model}</td>
                <td>{line.program}</td>
                <td>{line.requests.toLocaleString("en")}</td>
                <td>{line.prompt_tokens.toLocaleString("en")}</td>
                <td>{percent(line.cached_tokens, line.prompt_tokens)}</td>
                <td>{line.completion_tokens.toLocaleString("en")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
