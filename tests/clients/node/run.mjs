// Runs one client's public API against a server: `node run.mjs CASE URL`. Ends with 0 where everything was right.

import assert from "node:assert/strict";

const [name, url] = process.argv.slice(2);
const base = `${url}/v1`;
const model = "jan-tiny";
const question = "What is the weather in Oslo?";
const schema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

async function openaiNode() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 });
  const messages = [{ role: "user", content: "Hello!" }];
  const reply = await client.chat.completions.create({ model, messages });
  assert.ok(reply.choices[0].message.content);
  let text = "";
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  assert.ok(text);
  const seen = [];
  const runner = client.chat.completions.runTools({
    model,
    temperature: 0,
    messages: [{ role: "user", content: question }],
    tools: [
      {
        type: "function",
        function: {
          name: "get_weather",
          description: "Get the weather in a city",
          parameters: schema,
          parse: JSON.parse,
          function: ({ city }) => {
            seen.push(city);
            return '{"sky": "rain"}';
          },
        },
      },
    ],
  });
  assert.ok(await runner.finalContent());
  assert.deepEqual(seen, ["Oslo"]);
}

async function openaiResponses() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 });
  const tools = [{ type: "function", name: "get_weather", strict: true, parameters: schema }];
  const stream = client.responses.stream({ model, temperature: 0, input: question, tools });
  let written = "";
  stream.on("response.function_call_arguments.delta", ({ delta }) => (written += delta));
  const asked = await stream.finalResponse();
  const call = asked.output.find(({ type }) => type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Oslo" });
  assert.equal(written, call.arguments);
  const result = { type: "function_call_output", call_id: call.call_id, output: '{"sky": "rain"}' };
  const input = [{ role: "user", content: question }, ...asked.output, result];
  const answered = await client.responses.create({ model, temperature: 0, input, tools, store: false });
  const kept = await client.responses.create({
    model,
    temperature: 0,
    input: [result],
    tools,
    previous_response_id: asked.id,
  });
  assert.ok(answered.output_text);
  assert.equal(kept.output_text, answered.output_text);
}

async function anthropicNode() {
  const { default: Anthropic, APIError } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const messages = [{ role: "user", content: "Hello!" }];
  const hello = await client.messages.create({ model, max_tokens: 64, messages });
  assert.ok(hello.content[0].text);
  const counted = await client.messages.countTokens({ model, messages });
  const { input_tokens, cache_read_input_tokens } = hello.usage;
  assert.equal(counted.input_tokens, input_tokens + cache_read_input_tokens);
  let text = "";
  const stream = client.messages.stream({ model, max_tokens: 64, temperature: 0, messages });
  stream.on("text", (piece) => (text += piece));
  const final = await stream.finalMessage();
  assert.equal(final.content[0].text, text);
  const tools = [{ name: "get_weather", description: "Get the weather in a city", input_schema: schema }];
  const asked = { model, max_tokens: 200, temperature: 0, tools };
  const turns = [{ role: "user", content: question }];
  const called = await client.messages.stream({ ...asked, messages: turns }).finalMessage();
  const call = called.content.find(({ type }) => type === "tool_use");
  assert.deepEqual(call.input, { city: "Oslo" });
  turns.push({ role: "assistant", content: called.content });
  turns.push({
    role: "user",
    content: [{ type: "tool_result", tool_use_id: call.id, content: '{"sky": "rain"}' }],
  });
  assert.ok((await client.messages.create({ ...asked, messages: turns })).content[0].text);
  const output_config = { format: { type: "json_schema", schema } };
  const formed = await client.messages.create({ model, max_tokens: 99, messages: turns.slice(0, 1), output_config });
  assert.ok(JSON.parse(formed.content[0].text).city !== undefined);
  const left = client.messages.stream({ model, max_tokens: 2000, messages });
  left.on("streamEvent", () => left.abort());
  await assert.rejects(left.finalMessage());
  await assert.rejects(client.messages.create({ model, max_tokens: -1, messages }), (error) => {
    return error instanceof APIError && error.status === 400 && /max_tokens/.test(error.message);
  });
}

async function aiSdk() {
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  await aiSdkWith(createOpenAICompatible({ name: "jan", baseURL: base, includeUsage: true })(model));
}

// With answers stored, as is its default, this one refers to them by the ids of their items.
async function aiSdkResponses() {
  const { createOpenAI } = await import("@ai-sdk/openai");
  await aiSdkWith(createOpenAI({ baseURL: base, apiKey: "none" }).responses(model));
}

async function aiSdkWith(chat) {
  const { generateText, streamText, tool, stepCountIs } = await import("ai");
  const { z } = await import("zod");
  const plain = streamText({ model: chat, prompt: "Hello!" });
  let text = "";
  for await (const piece of plain.textStream) text += piece;
  assert.ok(text);
  assert.ok((await plain.usage).outputTokens > 0);
  const cities = [];
  const get_weather = tool({
    description: "Get the weather in a city",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      cities.push(city);
      return { sky: "rain" };
    },
  });
  const called = await generateText({
    model: chat,
    temperature: 0,
    prompt: question,
    tools: { get_weather },
    stopWhen: stepCountIs(3),
  });
  assert.deepEqual(cities, ["Oslo"]);
  assert.ok(called.text);
  const streamed = streamText({ model: chat, temperature: 0, prompt: question, tools: { get_weather } });
  const calls = [];
  for await (const part of streamed.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "tool-call") calls.push(part.input);
  }
  assert.deepEqual(calls, [{ city: "Oslo" }]);
}

async function ollamaNode() {
  const { Ollama } = await import("ollama");
  const client = new Ollama({ host: url });
  const messages = [{ role: "user", content: "Hello!" }];
  const whole = await client.chat({ model, messages, options: { temperature: 0 } });
  assert.ok(whole.message.content);
  let text = "";
  let last;
  for await (const part of await client.chat({ model, messages, stream: true, options: { temperature: 0 } })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done_reason, "stop");
  assert.ok(last.eval_count > 0 && last.eval_duration > 0);
  const tools = [
    { type: "function", function: { name: "get_weather", description: "Get the weather in a city", parameters: schema } },
  ];
  const asked = { model, tools, options: { temperature: 0 } };
  const turn = [{ role: "user", content: question }];
  const called = await client.chat({ ...asked, messages: turn });
  assert.deepEqual(called.message.tool_calls[0].function.arguments, { city: "Oslo" });
  const result = { role: "tool", tool_name: "get_weather", content: '{"sky": "rain"}' };
  assert.ok((await client.chat({ ...asked, messages: [...turn, called.message, result] })).message.content);
  const formed = await client.generate({ model, prompt: "Give a city as JSON.", format: schema });
  assert.ok("city" in JSON.parse(formed.response));
  assert.equal((await client.embed({ model, input: ["a", "b"] })).embeddings.length, 2);
  assert.ok((await client.list()).models.some((each) => each.name === `${model}:latest`));
  assert.ok((await client.show({ model })).capabilities.includes("tools"));
  assert.equal((await client.ps()).models[0].name, `${model}:latest`);
  await client.copy({ source: model, destination: "node-copy" });
  assert.equal((await client.delete({ model: "node-copy" })).status, "success");
  await assert.rejects(client.chat({ model: "absent", messages }), /model 'absent' not found/);
  await assert.rejects(async () => {
    for await (const part of await client.chat({ model: "absent", messages, stream: true })) void part;
  }, /model 'absent' not found/);
}

await { openaiNode, openaiResponses, anthropicNode, aiSdk, aiSdkResponses, ollamaNode }[name]();
