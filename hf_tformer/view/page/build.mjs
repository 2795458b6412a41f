// One script of all modules. Its first line names the sources that it was built from, so that a test
// without node can tell whether it is up to date.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { build } from "esbuild";

const hash = createHash("sha256");
for (const name of readdirSync("src").sort()) hash.update(readFileSync(`src/${name}`));

await build({
  entryPoints: ["src/main.ts"],
  bundle: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  outfile: "page.js",
  banner: { js: `// Built by \`make page\` from page/src: ${hash.digest("hex")}` },
});
