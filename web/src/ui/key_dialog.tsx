// Asks for the API key when the server wants one.
import { apiKey, keyIsAsked, useKey } from "../state/key";
import { Dialog } from "./dialog";

export function KeyDialog() {
  if (!keyIsAsked.value) return null;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const key = String(fields.get("key") ?? "").trim();
    if (key) useKey(key, fields.get("keep") === "on");
  };
  return (
    <Dialog title="This server asks for a key" onClose={() => (keyIsAsked.value = false)}>
      <form onSubmit={submit}>
        {apiKey.value && (
          <p class="problem" role="alert">
            The server did not accept this key.
          </p>
        )}
        <label>
          API key
          <input name="key" type="password" autocomplete="off" required />
        </label>
        <label class="check">
          <input name="keep" type="checkbox" /> Keep it in this browser
        </label>
        <div class="actions">
          <button type="submit" class="primary">
            Use this key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
