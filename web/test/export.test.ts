import assert from "node:assert/strict";
import test from "node:test";
import { newConversation, newMessage } from "../src/state/conversation";
import { asMarkdown } from "../src/state/export";

test("a conversation as Markdown", () => {
  const conversation = { ...newConversation(), title: "Weather" };
  conversation.settings = { ...conversation.settings, system: "Be brief." };
  const attachments = [{ kind: "text" as const, name: "a.md", content: "```\ncode\n```" }];
  const calls = [{ id: "1", name: "weather", arguments: "{}" }];
  conversation.messages = [
    { ...newMessage("user", "Cold?"), attachments },
    { ...newMessage("assistant", ""), model: "m", calls },
    { ...newMessage("tool", "-5"), callId: "1" },
    newMessage("assistant", "Yes."),
  ];
  assert.equal(
    asMarkdown(conversation),
    [
      "# Weather", "## Instructions", "Be brief.", "## Question", "a.md:", "````\n```\ncode\n```\n````", "Cold?",
      "## Answer of m", "Calls `weather`:", "```json\n{}\n```", "## Result", "```\n-5\n```", "## Answer", "Yes.",
    ].join("\n\n") + "\n",
  );
});
