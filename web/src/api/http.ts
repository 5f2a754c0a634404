// Calls of this server, with the key where one is known. Every failure is an ApiError with a message for people.
import { apiKey, askForKey } from "../state/key";

export class ApiError extends Error {
  constructor(
    message: string,
    /** HTTP status; 0 when the server was not reached. */
    readonly status: number,
    readonly code: string = "",
  ) {
    super(message);
  }
}

interface ErrorBody {
  error?: { message?: unknown; code?: unknown } | string;
}

/** A response with a good status. A 401 makes the page ask for the key. Throws ApiError, and AbortError for an abort. */
export async function call(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  const key = apiKey.value;
  if (key) headers.set("authorization", `Bearer ${key}`);
  if (typeof options.body === "string") headers.set("content-type", "application/json");
  let response: Response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is jan-serve running?", 0, "unreachable");
  }
  if (response.ok) return response;
  const error = await errorOf(response);
  // A late answer to a previous key does not concern the current one.
  if (error.status === 401 && key === apiKey.value) askForKey();
  throw error;
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  return readError(text, response.status) ?? new ApiError(text || `HTTP ${response.status}`, response.status);
}

/** The error in a body, or null. */
export function readError(text: string, status: number): ApiError | null {
  let body: ErrorBody;
  try {
    body = JSON.parse(text) as ErrorBody;
  } catch {
    return null;
  }
  const error = body?.error;
  if (error === undefined || error === null) return null;
  if (typeof error === "string") return new ApiError(error, status);
  return new ApiError(String(error.message ?? "unknown error"), status, String(error.code ?? ""));
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await call(path, signal ? { signal } : {});
  return (await response.json()) as T;
}

export async function postJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const response = await call(path, { method: "POST", body: JSON.stringify(body), ...(signal ? { signal } : {}) });
  return (await response.json()) as T;
}

export function wasAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Whether the server has nothing of that name. */
export function isMissing(error: unknown): boolean {
  return error instanceof ApiError && error.status === 404;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
