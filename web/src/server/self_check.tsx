// The last run of `jan-serve selfcheck`: what became worse with a new version.
import type { SelfCheckResult } from "../api/server";
import { moment } from "../ui/format";

export function SelfCheck({ last }: { last: SelfCheckResult }) {
  const compared = last.compared_with === null ? "" : `, compared with ${last.compared_with}`;
  return (
    <section aria-label="Self-check">
      <h2>Self-check</h2>
      <p class="hint">
        Version {last.version} on {moment(1000 * last.at)}
        {compared}
      </p>
      {last.findings.length === 0 ? (
        <p>Nothing became worse.</p>
      ) : (
        <ul class="problem">
          {last.findings.map((finding) => (
            <li key={finding}>{finding}</li>
          ))}
        </ul>
      )}
    </section>
  );
}
