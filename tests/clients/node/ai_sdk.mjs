// The AI SDK's providers against a server: `node ai_sdk.mjs URL` prints each case with its error, or null, as JSON.

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { createOllama } from "ollama-ai-provider-v2";
import { z } from "zod";

const url = process.argv[2];
const name = "jan-tiny";
const key = { apiKey: "none" };
const openai = createOpenAI({ ...key, baseURL: `${url}/v1` });
const compatible = createOpenAICompatible({
  name: "jan",
  baseURL: `${url}/v1`,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const ollama = createOllama({ baseURL: `${url}/api` });
const writers = {
  "openai responses": openai.responses(name),
  "openai chat": openai.chat(name),
  "openai completion": openai.completion(name),
  "openai-compatible chat": compatible(name),
  "openai-compatible completion": compatible.completionModel(name),
  anthropic: createAnthropic({ ...key, baseURL: `${url}/v1` })(name),
  ollama: ollama(name),
};
const embedders = {
  openai: openai.textEmbeddingModel(name),
  "openai-compatible": compatible.textEmbeddingModel(name),
  ollama: ollama.textEmbeddingModel(name),
};
const greedy = { temperature: 0, maxRetries: 0, maxOutputTokens: 256 };
const question = "What is the weather in Oslo?";
const person = z.object({ name: z.string(), age: z.number().int() });
const cities = [];
const get_weather = tool({
  description: "Get the weather in a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    cities.push(city);
    return { sky: "rain" };
  },
});
const red =
  "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CABzGMSuNDALgpY53qsYPpAAAAAElFTkSuQmCC";

async function events(stream) {
  const found = [];
  for await (const part of stream.fullStream) {
    if (part.type === "error") throw part.error;
    found.push(part);
  }
  return found;
}

const chats = {
  async text(model) {
    const found = await generateText({ model, ...greedy, prompt: "Hello!" });
    assert.ok(found.text);
    assert.equal(found.finishReason, "stop");
    assert.ok(found.usage.inputTokens > 0 && found.usage.outputTokens > 0);
  },
  async "streamed text"(model) {
    const stream = streamText({ model, ...greedy, prompt: "Hello!" });
    const pieces = (await events(stream)).filter(({ type }) => type === "text-delta").map(({ text }) => text);
    assert.ok(pieces.length > 0);
    assert.equal(pieces.join(""), await stream.text);
    assert.equal(await stream.finishReason, "stop");
    assert.ok((await stream.usage).outputTokens > 0);
  },
  async "cut text"(model) {
    const found = await generateText({ model, ...greedy, maxOutputTokens: 2, prompt: "Hello!" });
    assert.equal(found.finishReason, "length");
  },
  async "refused request"(model) {
    const asked = generateText({ model, ...greedy, prompt: "word ".repeat(9000) });
    await assert.rejects(asked, (error) => error.statusCode === 400 && /context|too long/.test(error.responseBody));
  },
  async "left stream"(model) {
    const controller = new AbortController();
    const stream = streamText({ model, prompt: "Tell me a story.", abortSignal: controller.signal, maxRetries: 0 });
    const kinds = [];
    for await (const part of stream.fullStream) {
      kinds.push(part.type);
      if (part.type === "text-delta") controller.abort();
    }
    assert.ok(kinds.includes("abort"));
  },
};
const talks = {
  async "tool loop"(model) {
    cities.length = 0;
    const found = await generateText({
      model,
      ...greedy,
      prompt: question,
      tools: { get_weather },
      stopWhen: stepCountIs(3),
    });
    assert.deepEqual(cities, ["Oslo"]);
    assert.equal(found.steps[0].finishReason, "tool-calls");
    assert.ok(found.text);
  },
  async "streamed tool loop"(model) {
    cities.length = 0;
    const stream = streamText({
      model,
      ...greedy,
      prompt: question,
      tools: { get_weather },
      stopWhen: stepCountIs(3),
    });
    const calls = (await events(stream)).filter(({ type }) => type === "tool-call");
    assert.deepEqual(calls.map(({ input }) => input), [{ city: "Oslo" }]);
    assert.ok(await stream.text);
  },
  async "forced tool"(model) {
    const found = await generateText({
      model,
      ...greedy,
      prompt: "Hello!",
      tools: { get_weather },
      toolChoice: { type: "tool", toolName: "get_weather" },
    });
    assert.equal(found.toolCalls[0].toolName, "get_weather");
  },
  async "no tool"(model) {
    const found = await generateText({ model, ...greedy, prompt: question, tools: { get_weather }, toolChoice: "none" });
    assert.equal(found.toolCalls.length, 0);
  },
  async object(model) {
    const found = await generateObject({ model, ...greedy, schema: person, prompt: "A person as JSON" });
    person.parse(found.object);
  },
  async "streamed object"(model) {
    const stream = streamObject({ model, ...greedy, schema: person, prompt: "A person as JSON" });
    for await (const part of stream.partialObjectStream) assert.equal(typeof part, "object");
    person.parse(await stream.object);
  },
  async "object beside turns"(model) {
    const messages = [
      { role: "user", content: "My name is Ada." },
      { role: "assistant", content: "Hello, Ada!" },
      { role: "user", content: "What is my name?" },
    ];
    const found = await generateObject({ model, ...greedy, schema: person, system: "Answer in JSON.", messages });
    person.parse(found.object);
  },
  async picture(model) {
    const content = [
      { type: "text", text: "What do you see?" },
      { type: "image", image: red, mediaType: "image/png" },
    ];
    assert.ok((await generateText({ model, ...greedy, messages: [{ role: "user", content }] })).text);
  },
  async thought(model) {
    const found = await generateText({
      model,
      ...greedy,
      maxOutputTokens: 2000,
      prompt: "Think: what is 2+3?",
      providerOptions: {
        openai: { reasoningEffort: "low", reasoningSummary: "auto", forceReasoning: true },
        jan: { reasoningEffort: "low" },
        anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
        ollama: { think: true },
      },
    });
    assert.ok(found.text);
    assert.ok(found.reasoningText);
  },
};
const embeds = {
  async embedding(model) {
    assert.ok((await embed({ model, value: "a", maxRetries: 0 })).embedding.length > 0);
  },
  async embeddings(model) {
    const found = await embedMany({ model, values: ["a", "b", "c"], maxRetries: 0 });
    assert.equal(found.embeddings.length, 3);
    assert.ok(found.usage.tokens > 0);
  },
};

const outcomes = {};
async function run(cases, model, provider) {
  for (const [kind, run] of Object.entries(cases)) {
    try {
      await run(model);
      outcomes[`${provider}: ${kind}`] = null;
    } catch (error) {
      outcomes[`${provider}: ${kind}`] = `${error?.stack ?? error}\n${error?.responseBody ?? ""}`;
    }
  }
}
for (const [provider, model] of Object.entries(writers)) {
  await run(chats, model, provider);
  if (!provider.endsWith("completion")) await run(talks, model, provider);
}
for (const [provider, model] of Object.entries(embedders)) await run(embeds, model, provider);
console.log(JSON.stringify(outcomes));
