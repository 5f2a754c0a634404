// Pulls a model from the hub and shows its progress.
import { forgetPull, isPulling, pausePull, pull, pullProblem, startPull, type Pull } from "../state/pull";
import { bytes, duration } from "../ui/format";

export function PullForm() {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get("name") ?? "").trim();
    if (name) void startPull(name);
  };
  return (
    <section class="pull" aria-label="Get a model">
      <form class="row" onSubmit={submit}>
        <label class="fill">
          Get a model from the hub
          <input name="name" placeholder="org/repository, org/repository:Q4_K_M, or a name of the catalogue" required disabled={isPulling.value} spellcheck={false} autocapitalize="off" />
        </label>
        <button type="submit" class="primary" disabled={isPulling.value}>
          Pull
        </button>
      </form>
      <PullProgress />
    </section>
  );
}

/** The pull that runs or is paused, or why the last one failed; nothing without either. */
export function PullProgress() {
  const running = pull.value;
  return (
    <>
      {running && (
        <div class="pulling">
          <div class="pull-words">
            <strong>{running.name}</strong> <span class="hint">{words(running)}</span>
          </div>
          <div class="row">
            <progress class="fill" aria-label={`Pulling ${running.name}`} max={running.total || 1} {...(running.total > 0 ? { value: running.done } : {})} />
            {isPulling.value ? (
              <button type="button" onClick={pausePull}>
                Pause
              </button>
            ) : (
              <>
                <button type="button" class="primary" onClick={() => void startPull(running.name)}>
                  Resume
                </button>
                <button type="button" onClick={forgetPull}>
                  Dismiss
                </button>
              </>
            )}
          </div>
        </div>
      )}
      {pullProblem.value && (
        <p class="problem" role="alert">
          {pullProblem.value}
        </p>
      )}
    </>
  );
}

function words({ done, total, rate, words: text, controller }: Pull): string {
  if (controller === null) return `Paused at ${bytes(done)} of ${bytes(total)}`;
  if (done === 0) return text;
  const left = rate > 0 ? `, ${bytes(rate)}/s, ${duration((total - done) / rate)} left` : "";
  return `${bytes(done)} of ${bytes(total)}${left}`;
}
