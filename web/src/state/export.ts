// Exports a conversation as a file.
import type { Conversation, Message } from "./conversation";

export function asMarkdown(conversation: Conversation): string {
  const { title, settings, messages } = conversation;
  const parts = [`# ${title}`];
  if (settings.system.trim()) parts.push("## Instructions", settings.system.trim());
  for (const message of messages) parts.push(...written(message));
  return `${parts.join("\n\n")}\n`;
}

function written(message: Message): string[] {
  switch (message.role) {
    case "user": {
      const files = (message.attachments ?? []).map(({ kind, name, content }) =>
        kind === "text" ? `${name}:\n\n${fenced(content, "")}` : `(${kind === "pdf" ? "PDF" : "picture"}: ${name})`,
      );
      return ["## Question", ...files, message.text];
    }
    case "tool":
      return ["## Result", fenced(message.text, "")];
    case "assistant": {
      const calls = (message.calls ?? []).map(({ name, arguments: text }) => `Calls \`${name}\`:\n\n${fenced(text, "json")}`);
      return [`## Answer${message.model ? ` of ${message.model}` : ""}`, message.text, ...calls].filter((part) => part !== "");
    }
  }
}

/** In a fence longer than any in the text. */
function fenced(text: string, language: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The download has begun by then; the URL would keep the text in memory as long as the page is open.
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
