// Files that go with a question. The browser reads them and sends them with it; nothing is uploaded earlier.
import type { Attachment } from "../state/conversation";

export const MAX_ATTACHMENTS = 10;
const MAX_TEXT_BYTES = 500_000;
const MAX_PDF_BYTES = 15_000_000;
// Each turn sends the pictures again, and no model is shown more than so many pixels of one (docs/images.md).
const MAX_IMAGE_BYTES = 2_000_000;
const MAX_PIXELS = 4_000_000;
const SENT_AS_THEY_ARE = ["image/png", "image/jpeg", "image/gif", "image/bmp", "image/webp"];

/** Throws an Error that says what is wrong with the file. */
export async function readAttachment(file: File, images: boolean): Promise<Attachment> {
  if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
    if (!images) throw new Error(`${file.name}: this model does not see pictures`);
    return { kind: "image", name: file.name, content: await picture(file) };
  }
  if (file.type === "application/pdf") {
    if (file.size > MAX_PDF_BYTES) throw new Error(`${file.name}: PDFs may have 15 MB at most`);
    return { kind: "pdf", name: file.name, content: await dataUrl(file) };
  }
  if (file.size > MAX_TEXT_BYTES) throw new Error(`${file.name}: text files may have 500 KB at most`);
  try {
    const content = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return { kind: "text", name: file.name, content };
  } catch {
    throw new Error(`${file.name}: only text, PDFs${images ? " and pictures" : ""} can be attached`);
  }
}

/** Bytes that go with the question. */
export function sentBytes({ kind, content }: Attachment): number {
  if (kind === "text") return new Blob([content]).size;
  const base64 = content.slice(content.indexOf(",") + 1).replace(/=+$/, "");
  return Math.floor(base64.length * 0.75);
}

/** A data URL of the picture, drawn again if it is large or of a format that the server does not read. */
async function picture(file: File): Promise<string> {
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name}: this browser cannot read the picture`);
  });
  try {
    if (SENT_AS_THEY_ARE.includes(file.type) && file.size <= MAX_IMAGE_BYTES) return await dataUrl(file);
    return drawn(image);
  } finally {
    image.close();
  }
}

function drawn(image: ImageBitmap): string {
  const scale = Math.min(1, Math.sqrt(MAX_PIXELS / (image.width * image.height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  const context = canvas.getContext("2d")!;
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
