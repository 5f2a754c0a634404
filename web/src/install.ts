// Makes the page one that browsers install, and that opens without its server.

interface Policies {
  createPolicy(name: string, rules: { createScriptURL: () => string }): { createScriptURL(url: string): string };
}

/** Browsers have service workers only on this machine and over HTTPS. */
export function installWorker(): void {
  const url = new URL("assets/worker.js", document.baseURI).href;
  const policies = (window as { trustedTypes?: Policies }).trustedTypes;
  // The policy makes this one URL, whatever it is asked for.
  const script = policies?.createPolicy("worker", { createScriptURL: () => url }).createScriptURL("") ?? url;
  void navigator.serviceWorker?.register(script, { scope: "./" }).catch(() => {
    // The browser keeps nothing, for example in a private window: the page works as long as its server runs.
  });
}
