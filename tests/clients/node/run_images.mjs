// Sends an image through one client's public API, and reads what the built-in model sees: `node run_images.mjs CASE URL`.
// Ends with 0 where everything was right.

import assert from "node:assert/strict";
import { crc32, deflateSync } from "node:zlib";

const [name, url] = process.argv.slice(2);
const base = `${url}/v1`;
const model = "jan-tiny";
const ask = "What is in this picture?";
const answer = "I see a red square.";
const IMAGE_TOKENS = 74;

function chunk(kind, body) {
  const named = Buffer.concat([Buffer.from(kind), body]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(body.length);
  check.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, check]);
}

/** 32x32: a red square on white. */
function png() {
  const blank = Buffer.concat([Buffer.from([0]), Buffer.alloc(96, 255)]);
  const crossed = Buffer.from(blank);
  for (let x = 8; x < 24; x += 1) crossed.set([255, 0, 0], 1 + 3 * x);
  const header = Buffer.from([0, 0, 0, 32, 0, 0, 0, 32, 8, 2, 0, 0, 0]);
  const rows = deflateSync(Buffer.concat(Array.from({ length: 32 }, (_, y) => (y >= 8 && y < 24 ? crossed : blank))));
  const parts = [chunk("IHDR", header), chunk("IDAT", rows), chunk("IEND", Buffer.alloc(0))];
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), ...parts]);
}

const data = png().toString("base64");
const dataUrl = `data:image/png;base64,${data}`;

/** send: asks with and without the image, and returns the answer's text and the tokens of its prompt. */
async function compared(send) {
  const [[text, tokens], [, blind]] = [await send(true), await send(false)];
  assert.equal(text, answer);
  assert.equal(tokens - blind, IMAGE_TOKENS);
}

async function openaiNode() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 });
  const text = { type: "text", text: ask };
  const image = { type: "image_url", image_url: { url: dataUrl } };
  await compared(async (seen) => {
    const messages = [{ role: "user", content: seen ? [text, image] : [text] }];
    const { choices, usage } = await client.chat.completions.create({ model, messages, max_tokens: 16, temperature: 0 });
    return [choices[0].message.content, usage.prompt_tokens];
  });
  await compared(async (seen) => {
    const content = [{ type: "input_text", text: ask }];
    if (seen) content.push({ type: "input_image", image_url: dataUrl, detail: "auto" });
    const input = [{ role: "user", content }];
    const reply = await client.responses.create({ model, input, max_output_tokens: 16, temperature: 0 });
    return [reply.output_text, reply.usage.input_tokens];
  });
}

async function anthropicNode() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data } };
  await compared(async (seen) => {
    const content = [{ type: "text", text: ask }, ...(seen ? [image] : [])];
    const messages = [{ role: "user", content }];
    const counted = await client.messages.countTokens({ model, messages });
    const { content: said, usage } = await client.messages.create({ model, messages, max_tokens: 16, temperature: 0 });
    assert.equal(usage.input_tokens + usage.cache_read_input_tokens, counted.input_tokens);
    return [said[0].text, counted.input_tokens];
  });
}

async function ollamaNode() {
  const { Ollama } = await import("ollama");
  const client = new Ollama({ host: url });
  await compared(async (seen) => {
    const messages = [{ role: "user", content: ask, ...(seen ? { images: [data] } : {}) }];
    const reply = await client.chat({ model, messages, options: { num_predict: 40, temperature: 0 } });
    return [reply.message.content, reply.prompt_eval_count];
  });
}

async function aiSdk() {
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const { createOpenAI } = await import("@ai-sdk/openai");
  const { generateText } = await import("ai");
  const providers = [
    createOpenAICompatible({ name: "jan-serve", baseURL: base, includeUsage: true })(model),
    createOpenAI({ baseURL: base, apiKey: "none" })(model),
  ];
  for (const provider of providers) {
    await compared(async (seen) => {
      const content = [{ type: "text", text: ask }];
      if (seen) content.push({ type: "image", image: new Uint8Array(png()), mediaType: "image/png" });
      const options = { model: provider, messages: [{ role: "user", content }], maxOutputTokens: 16, temperature: 0 };
      const { text, usage } = await generateText(options);
      return [text, usage.inputTokens];
    });
  }
}

await { openaiNode, anthropicNode, ollamaNode, aiSdk }[name]();
