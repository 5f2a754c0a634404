// A chat without a build: what a source checkout shows where node was not there to build the page of src/.
"use strict";

const field = (id) => document.getElementById(id);
const [messages, question, model, status] = ["messages", "question", "model", "status"].map(field);
const KEY = "api-key";
let history = [];
let running = null;

async function call(path, options = {}) {
  const headers = { "content-type": "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  if (response.status === 401) field("key-dialog").showModal();
  const body = await response.json().catch(() => null);
  throw new Error(body?.error?.message ?? `HTTP ${response.status}`);
}

async function listModels() {
  try {
    const { data } = await (await call("v1/models")).json();
    model.replaceChildren(...data.map(({ id }) => new Option(id, id)));
    status.textContent = data.length ? "" : "There is no model here yet: get one with `jan-serve pull`.";
  } catch (error) {
    status.textContent = error.message;
  }
}

function show(kind, text) {
  const box = document.createElement("article");
  box.className = kind;
  box.textContent = text;
  messages.append(box);
  messages.scrollTop = messages.scrollHeight;
  return box;
}

async function* deltas(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:") || line.slice(5).trim() === "[DONE]") continue;
      const chunk = JSON.parse(line.slice(5));
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk.choices?.[0]?.delta?.content ?? "";
    }
  }
}

async function ask(text) {
  history.push({ role: "user", content: text });
  show("user", text);
  const box = show("assistant", "");
  running = new AbortController();
  field("stop").hidden = false;
  field("send").hidden = true;
  status.textContent = "Answering";
  try {
    const body = JSON.stringify({ model: model.value, messages: history, stream: true });
    const response = await call("v1/chat/completions", { method: "POST", body, signal: running.signal });
    for await (const delta of deltas(response)) {
      box.textContent += delta;
      messages.scrollTop = messages.scrollHeight;
    }
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  } finally {
    if (box.textContent) history.push({ role: "assistant", content: box.textContent });
    else box.remove();
    running = null;
    field("stop").hidden = true;
    field("send").hidden = false;
    status.textContent = "";
    question.focus();
  }
}

field("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value.trim();
  if (!text || running) return;
  question.value = "";
  void ask(text);
});
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    field("ask").requestSubmit();
  } else if (event.key === "Escape") running?.abort();
});
field("stop").addEventListener("click", () => running?.abort());
field("clear").addEventListener("click", () => {
  running?.abort();
  history = [];
  messages.replaceChildren();
  question.focus();
});
field("key-dialog").addEventListener("close", () => {
  if (field("key").value) sessionStorage.setItem(KEY, field("key").value);
  void listModels();
});
void listModels();
