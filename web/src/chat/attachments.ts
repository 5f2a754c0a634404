// Files that go with a question. The browser reads them and sends them with it; nothing is uploaded earlier.
import type { Attachment } from "../state/conversation";

export const MAX_ATTACHMENTS = 10;
const MAX_IMAGE_BYTES = 10_000_000;
const MAX_TEXT_BYTES = 500_000;

/** Throws an Error that says what is wrong with the file. */
export async function readAttachment(file: File, images: boolean): Promise<Attachment> {
  if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
    if (!images) throw new Error(`${file.name}: this model does not see pictures`);
    if (file.size > MAX_IMAGE_BYTES) throw new Error(`${file.name}: pictures may have 10 MB at most`);
    return { kind: "image", name: file.name, content: await dataUrl(file) };
  }
  if (file.size > MAX_TEXT_BYTES) throw new Error(`${file.name}: text files may have 500 KB at most`);
  try {
    const content = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return { kind: "text", name: file.name, content };
  } catch {
    throw new Error(`${file.name}: only text${images ? " and pictures" : ""} can be attached`);
  }
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
