// Settings for any program that speaks OpenAI's API; the server has those of editors (api/clients.ts).

export interface Place {
  /** Of this server, without a slash at the end. */
  url: string;
  model: string;
  /** Whether the server asks for a key. */
  keyed: boolean;
}

interface Sample {
  name: string;
  /** Where the settings go. */
  where: string;
  settings: (place: Place) => string;
}

// Most programs require some key and accept any.
function key({ keyed }: Place): string {
  return keyed ? "YOUR-KEY" : "none";
}

export const SAMPLES: Sample[] = [
  {
    name: "Any OpenAI client",
    where: "environment variables",
    settings: (place) => `OPENAI_BASE_URL=${place.url}/v1\nOPENAI_API_KEY=${key(place)}`,
  },
  {
    name: "curl",
    where: "a shell",
    settings: (place) =>
      [
        `curl ${place.url}/v1/chat/completions \\`,
        "  -H 'Content-Type: application/json' \\",
        ...(place.keyed ? ["  -H 'Authorization: Bearer YOUR-KEY' \\"] : []),
        `  -d '${JSON.stringify({ model: place.model, messages: [{ role: "user", content: "Hello!" }] }).replaceAll("'", "'\\''")}'`,
      ].join("\n"),
  },
  {
    name: "Python",
    where: "pip install openai",
    settings: (place) =>
      [
        "from openai import OpenAI",
        "",
        `client = OpenAI(base_url=${JSON.stringify(`${place.url}/v1`)}, api_key=${JSON.stringify(key(place))})`,
        "answer = client.chat.completions.create(",
        `    model=${JSON.stringify(place.model)},`,
        '    messages=[{"role": "user", "content": "Hello!"}],',
        ")",
        "print(answer.choices[0].message.content)",
      ].join("\n"),
  },
];
