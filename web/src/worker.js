// The service worker: it keeps the page's files, so that the page opens without its server. Answers of the API are
// never kept. FILES (build.mjs): the assets, whose names change with their content.
const SHELL = new URL("../", self.location.href).href;
const ASSETS = new Set(FILES.map((name) => new URL(name, self.location.href).href));
const CACHE = `page ${FILES.join(" ")}`;

self.addEventListener("install", (event) => event.waitUntil(keep()));
self.addEventListener("activate", (event) => event.waitUntil(takeOver()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  if (request.mode === "navigate" && request.url.split(/[?#]/)[0] === SHELL) event.respondWith(fetch(request).catch(() => kept(SHELL)));
  else if (ASSETS.has(request.url)) event.respondWith(kept(request.url).then((found) => found ?? fetch(request)));
});

async function keep() {
  const cache = await caches.open(CACHE);
  // Programs, which ask for no HTML, get a greeting instead of the page.
  await cache.addAll([new Request(SHELL, { headers: { accept: "text/html" } }), ...ASSETS]);
  await self.skipWaiting();
}

async function takeOver() {
  const old = (await caches.keys()).filter((name) => name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

function kept(url) {
  return caches.match(url, { ignoreVary: true });
}
