// Bundles the page into dist/: index.html, and assets/ whose names carry the hash of their content.
import { build } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(fileURLToPath(import.meta.url));
const out = join(root, "dist");

await rm(out, { recursive: true, force: true });
await mkdir(join(out, "assets"), { recursive: true });

const result = await build({
  absWorkingDir: root,
  entryPoints: { page: "src/main.tsx", theme: "src/theme.ts", icon: "src/icon.svg", "icon-192": "src/icon-192.png", "icon-512": "src/icon-512.png" },
  outdir: join(out, "assets"),
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome120", "firefox121", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".svg": "copy", ".png": "copy" },
  legalComments: "none", // licenses() has them whole
  metafile: true,
  logLevel: "warning",
});

const names = Object.keys(result.metafile.outputs).map((path) => basename(path));
function asset(stem, extension) {
  const found = names.find((name) => name.startsWith(`${stem}-`) && name.endsWith(extension));
  if (found === undefined) throw new Error(`esbuild wrote no ${stem}*${extension}`);
  return found;
}

const marks = [
  ["%theme%", asset("theme", ".js")],
  ["%script%", asset("page", ".js")],
  ["%style%", asset("page", ".css")],
  ["%icon%", asset("icon", ".svg")],
  ["%icon-192%", asset("icon-192", ".png")],
  ["%icon-512%", asset("icon-512", ".png")],
];

/** A source with the names of the assets in it. */
async function filled(source, folder) {
  const text = await readFile(join(root, source), "utf8");
  return marks.reduce((known, [mark, name]) => known.replaceAll(mark, folder + name), text);
}

await writeFile(join(out, "index.html"), await filled("src/index.html", "assets/"));
await writeFile(join(out, "assets/manifest.webmanifest"), await filled("src/manifest.json", ""));
// Its address stays the same: browsers compare its content to find a new version.
await build({
  absWorkingDir: root,
  entryPoints: ["src/worker.js"],
  outdir: join(out, "assets"),
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome120", "firefox121", "safari17.5"],
  define: { FILES: JSON.stringify([...names.filter((name) => !name.endsWith(".png")), "manifest.webmanifest"].sort()) },
  logLevel: "warning",
});

await writeFile(join(out, "assets/licenses.txt"), await licenses());

// The licenses of all packages in the bundle, which must ship with it.
async function licenses() {
  const packages = new Set();
  for (const input of Object.keys(result.metafile.inputs)) {
    const name = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1];
    if (name !== undefined) packages.add(name);
  }
  const parts = [];
  for (const name of [...packages].sort()) {
    const folder = join(root, "node_modules", name);
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) throw new Error(`${name} has no license file`);
    const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    parts.push(`${name} ${version}\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`);
  }
  return parts.join(`\n${"-".repeat(80)}\n\n`);
}
