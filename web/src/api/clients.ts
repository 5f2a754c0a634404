// Settings of other programs for this server, in their own file formats.
import { getJson } from "./http";

export interface Client {
  id: string;
  title: string;
  /** The file that the settings go into; null if the program stores them elsewhere. */
  path: string | null;
  settings: string | null;
  steps: string[];
}

export async function listClients(model: string, signal: AbortSignal): Promise<Client[]> {
  const query = model ? `?model=${encodeURIComponent(model)}` : "";
  return (await getJson<{ data: Client[] }>(`extras/clients${query}`, signal)).data;
}
